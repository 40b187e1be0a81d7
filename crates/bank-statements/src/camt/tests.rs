#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// Accepts all currencies but one.
fn is_currency(code: &str) -> bool {
    code != "KWD"
}

fn document(version: &str, entries: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.{version}"><BkToCstmrStmt><GrpHdr><MsgId>M1</MsgId></GrpHdr><Stmt><Id>S1</Id>{entries}</Stmt></BkToCstmrStmt></Document>"#
    )
}

fn shown(text: &str) -> Vec<String> {
    let shown = |l: &BankLine| {
        let reversal = if l.is_reversal { " reversal" } else { "" };
        let text = l.text.as_deref().unwrap_or("-");
        format!(
            "{} {} {} {} {}{reversal} [{}] {text}",
            l.number,
            l.booked_on,
            l.direction.as_str(),
            l.amount,
            l.currency,
            l.references.join(" ")
        )
    };
    lines(text, is_currency).unwrap().iter().map(shown).collect()
}

#[test]
fn old_and_new_versions_yield_the_same_lines() {
    let old = r#"<Ntry><Amt Ccy="EUR">100.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>BOOK</Sts><BookgDt><Dt>2026-01-31</Dt></BookgDt>
        <AcctSvcrRef>B1</AcctSvcrRef><NtryDtls><TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs><RmtInf><Ustrd>invoice</Ustrd><Ustrd>5</Ustrd></RmtInf></TxDtls></NtryDtls></Ntry>"#;
    let new = r#"<Ntry><Amt Ccy="EUR">100.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts><BookgDt><DtTm>2026-01-31T10:00:00+01:00</DtTm></BookgDt>
        <AcctSvcrRef>B1</AcctSvcrRef><NtryDtls><TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs><Amt Ccy="EUR">100.00</Amt><CdtDbtInd>CRDT</CdtDbtInd>
        <RmtInf><Ustrd>invoice</Ustrd><Ustrd>5</Ustrd></RmtInf></TxDtls></NtryDtls></Ntry>"#;
    let expected = ["1 2026-01-31 CREDIT 100.00 EUR [E1 B1] invoice 5"];
    assert_eq!(shown(&document("001.02", old)), expected);
    assert_eq!(shown(&document("001.10", new)), expected);
}

#[test]
fn a_batch_yields_a_line_for_each_payment_and_a_pending_entry_yields_none() {
    let batch = r#"<Ntry><Amt Ccy="EUR">30.00</Amt><CdtDbtInd>DBIT</CdtDbtInd><Sts>BOOK</Sts><ValDt><Dt>2026-02-01</Dt></ValDt><NtryDtls><Btch><NbOfTxs>2</NbOfTxs></Btch>
        <TxDtls><Refs><EndToEndId>PAY-0000000001</EndToEndId></Refs><AmtDtls><TxAmt><Amt Ccy="EUR">10.00</Amt></TxAmt></AmtDtls></TxDtls>
        <TxDtls><Refs><EndToEndId>NOTPROVIDED</EndToEndId><TxId>T2</TxId></Refs><AmtDtls><TxAmt><Amt Ccy="EUR">20.00</Amt></TxAmt></AmtDtls></TxDtls></NtryDtls></Ntry>
        <Ntry><Amt Ccy="EUR">5.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>PDNG</Sts><BookgDt><Dt>2026-02-01</Dt></BookgDt></Ntry>
        <Ntry><Amt Ccy="EUR">7.00</Amt><CdtDbtInd>DBIT</CdtDbtInd><RvslInd>true</RvslInd><Sts>BOOK</Sts><BookgDt><Dt>2026-02-02</Dt></BookgDt><AddtlNtryInf>returned</AddtlNtryInf></Ntry>"#;
    assert_eq!(
        shown(&document("001.08", batch)),
        [
            "1 2026-02-01 DEBIT 10.00 EUR [PAY-0000000001] -",
            "2 2026-02-01 DEBIT 20.00 EUR [T2] -",
            "3 2026-02-02 DEBIT 7.00 EUR reversal [] returned",
        ]
    );
}

#[test]
fn invalid_statements_are_refused_without_repeating_their_content() {
    let wrong = |text: &str| lines(text, is_currency).unwrap_err().to_string();
    assert_eq!(
        wrong("<Document><CstmrCdtTrfInitn/></Document>"),
        "is not a camt.053 document: BkToCstmrStmt with Stmt is missing"
    );
    assert_eq!(wrong("{}"), "is not a camt.053 document: BkToCstmrStmt with Stmt is missing");
    assert_eq!(wrong(&document("001.02", "")), "has no booked lines");
    assert_eq!(wrong("<!DOCTYPE x><Document/>"), "must not have a document type or custom entities");
    let entry = |inner: &str| wrong(&document("001.02", &format!("<Ntry>{inner}</Ntry>")));
    assert_eq!(entry("<CdtDbtInd>CRDT</CdtDbtInd>"), "row 1 has no Amt");
    assert_eq!(entry("<Amt Ccy=\"EUR\">1.001</Amt>"), "row 1 has an Amt that is not an amount of at most two decimals");
    assert_eq!(entry("<Amt Ccy=\"KWD\">1.00</Amt>"), "row 1 has a currency that is not accepted");
    assert_eq!(entry("<Amt Ccy=\"EUR\">1.00</Amt>"), "row 1 has no CdtDbtInd");
    let parts = r#"<Amt Ccy="EUR">3.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><BookgDt><Dt>2026-02-02</Dt></BookgDt><NtryDtls>
        <TxDtls><Amt Ccy="EUR">1.00</Amt></TxDtls><TxDtls><Amt Ccy="EUR">1.00</Amt></TxDtls></NtryDtls>"#;
    assert_eq!(entry(parts), "row 1 has payments that do not add up to its Amt");
}

/// Fragments with a meaning in XML or in these documents.
const PIECES: [&str; 18] = [
    "<",
    ">",
    "/",
    "&",
    "&amp;",
    "&#0;",
    "&#x110000;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "<?",
    "<!ENTITY",
    "</Ntry>",
    "<Ntry>",
    "<Amt Ccy=\"EUR\">",
    "99999999999999999.99",
    "9999-12-31",
    "\u{feff}",
];

proptest! {
    /// Any document yields lines or an error.
    #[test]
    fn no_document_panics(
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), select(PIECES.to_vec()), any::<String>()), 1..6),
    ) {
        let entry = r#"<Ntry><Amt Ccy="EUR">3.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>BOOK</Sts><BookgDt><Dt>2026-01-31</Dt></BookgDt>
            <NtryDtls><TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs><AmtDtls><TxAmt><Amt Ccy="EUR">3.00</Amt></TxAmt></AmtDtls></TxDtls></NtryDtls></Ntry>"#;
        let mut text: Vec<char> = document("001.08", entry).chars().collect();
        for (at, end, piece, other) in &changes {
            let (at, end) = (at.index(text.len() + 1), end.index(text.len() + 1));
            // Keep most replacements short, so that most of the document stays intact.
            let end = if end % 4 == 0 { end.max(at) } else { (at + end % 8).min(text.len()) };
            let piece = if end % 3 == 0 { other.as_str() } else { piece };
            text.splice(at..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        if let Ok(read) = lines(&text, is_currency) {
            prop_assert!(!read.is_empty(), "{}", text);
        }
    }
}
