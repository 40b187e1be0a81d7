#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// Example of Go's `golang.org/x/mod/sumdb/note`: a note, its public key, and the seed of its private key.
const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const PETER_SEED: &str = "AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const PETER_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n\n\
    — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

/// Cosigned checkpoint of C2SP `tlog-cosignature`, verbatim. Its private keys are not published.
const COSIGNED: &str = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
    — example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
    — witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

#[test]
fn the_published_example_is_verified_and_reproduced() {
    let keys = [PETER.parse().unwrap()];
    let note = Note::parse(PETER_NOTE).unwrap();
    let verified = note.verify(&keys).unwrap();
    assert_eq!((verified[0].key.name(), verified[0].key.id(), verified[0].time), ("PeterNeumann", 0xc74f20a3, None));
    assert_eq!(note.to_string(), PETER_NOTE);
    assert_eq!(keys[0].to_string(), PETER);

    let seed = STANDARD.decode(PETER_SEED).unwrap();
    let secret = SigningKey::from_seed(&seed[1..]).unwrap();
    assert_eq!(secret.verifier("PeterNeumann", Algorithm::Ed25519).unwrap(), keys[0]);
    let again = Note::new(note.text().to_owned(), vec![secret.sign("PeterNeumann", note.text()).unwrap()]).unwrap();
    assert_eq!(again.to_string(), PETER_NOTE);
}

#[test]
fn the_published_cosigned_checkpoint_is_parsed() {
    let note = Note::parse(COSIGNED).unwrap();
    assert_eq!(note.to_string(), COSIGNED);
    let cosignature = &note.signatures[1];
    assert_eq!((cosignature.name.as_str(), cosignature.id, cosignature.bytes.len()), ("witness.example.com/w1", 0x8d66_cf3f, 72));
    // The specification states this time; it is the same in the signature and in the signed message.
    assert_eq!(cosignature.bytes[..8], 1_679_315_147_u64.to_be_bytes());
    assert_eq!(
        cosigned(1_679_315_147, note.text()).lines().take(3).collect::<Vec<_>>(),
        ["cosignature/v1", "time 1679315147", "example.com/behind-the-sofa"]
    );
}

#[test]
fn unknown_signatures_are_ignored_and_forged_ones_are_refused() {
    let text = "example.com/log\n0\n";
    let (log, witness, stranger) = (key(1), key(2), key(3));
    let known = [
        log.verifier("example.com/log", Algorithm::Ed25519).unwrap(),
        witness.verifier("w.example.com", Algorithm::CosignatureV1).unwrap(),
    ];
    let signatures = vec![
        stranger.sign("stranger", text).unwrap(),
        // The log's name with another key, and the log's key under another name.
        stranger.sign("example.com/log", text).unwrap(),
        log.sign("example.com/other", text).unwrap(),
        witness.cosign("w.example.com", text, 1_700_000_000).unwrap(),
        log.sign("example.com/log", text).unwrap(),
    ];
    let note = Note::parse(&Note::new(text.to_owned(), signatures.clone()).unwrap().to_string()).unwrap();
    let verified = note.verify(&known).unwrap();
    assert_eq!(verified, [Verified { key: &known[1], time: Some(1_700_000_000) }, Verified { key: &known[0], time: None }]);

    let strangers = Note::new(text.to_owned(), signatures[..3].to_vec()).unwrap();
    assert_eq!(strangers.verify(&known), Err(NoteError::Unsigned));
    for forged in [3, 4] {
        for byte in 0..signatures[forged].bytes.len() {
            let mut signatures = signatures.clone();
            signatures[forged].bytes[byte] ^= 1;
            let note = Note::new(text.to_owned(), signatures).unwrap();
            assert!(matches!(note.verify(&known), Err(NoteError::Signature(_))), "{forged} {byte}");
        }
    }
    // A witness's signature over the text alone is not a cosignature. Neither is a signature that is too short.
    for bytes in [witness.sign("w.example.com", text).unwrap().bytes, vec![0; 5]] {
        let mut signatures = signatures.clone();
        signatures[3].bytes = bytes;
        assert!(Note::new(text.to_owned(), signatures).unwrap().verify(&known).is_err());
    }
}

#[test]
fn malformed_notes_and_keys_are_refused() {
    for wrong in [
        "",
        "text\n",
        "text\n\n",
        "text\n\n— a AAAAAAA=",
        "text\n— a AAAAAAA=\n",
        "text\n\n- a AAAAAAA=\n",
        "text\n\n— a AAAAAAA\n",
        "text\n\n— a AAAA\n",
        "text\n\n— a  AAAAAAA=\n",
        "text\n\n— a+b AAAAAAA=\n",
        "text\n\n—  AAAAAAA=\n",
        "text\n\n— a AAAAAAA= \n",
        "text\n\n— a AAAAAAA=\n\n",
        "text\r\n\n— a AAAAAAA=\n",
        "te\txt\n\n— a AAAAAAA=\n",
        "text\n\n— a AAAAAAA=\nmore\n",
    ] {
        assert!(Note::parse(wrong).is_err(), "{wrong:?}");
    }
    assert!(Note::parse("text\n\n— a AAAAAAA=\n").is_ok());
    let many = "— a AAAAAAA=\n".repeat(101);
    assert!(Note::parse(&format!("text\n\n{many}")).is_err());
    let good = key(1).verifier("example.com/log", Algorithm::Ed25519).unwrap().to_string();
    assert!(good.parse::<VerifierKey>().is_ok());
    for wrong in [
        "",
        "a+b",
        "example.com/log+00000000+AQID",
        &good.replacen('+', "+0", 1),
        &good[1..],
        &format!("{good}="),
        &format!(" {good}"),
    ] {
        assert!(wrong.parse::<VerifierKey>().is_err(), "{wrong:?}");
    }
    assert!(SigningKey::from_seed(&[0; 31]).is_err());
    assert_eq!(format!("{:?}", key(1)), "SigningKey");
}

proptest! {
    #[test]
    fn a_changed_note_is_not_verified(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let secret = key(9);
        let known = [secret.verifier("example.com/log/1", Algorithm::Ed25519).unwrap()];
        let text = "example.com/log/1\n1234\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let whole = Note::new(text.to_owned(), vec![secret.sign("example.com/log/1", text).unwrap()]).unwrap().to_string();
        let mut bytes = whole.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(changed) = String::from_utf8(bytes)
            && changed != whole
            && let Ok(note) = Note::parse(&changed)
        {
            prop_assert!(note.verify(&known).is_err(), "{}", changed);
        }
    }

    #[test]
    fn parsing_arbitrary_text_does_not_panic(text in "(\\PC|\n|— ){0,80}") {
        if let Ok(note) = Note::parse(&text) {
            prop_assert_eq!(note.to_string(), text);
        }
    }
}
