//! Cursors of event feeds: positions of the log that only this service can read and make.
//!
//! A cursor names its account and shard only in its tag, so it is valid for no other account. The tag is also the nonce of
//! the encryption (SIV). The keys survive rotations of the master key, so a client can keep a cursor forever.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger_events::{AccountId, Position, ShardId};
use subtle::ConstantTimeEq;

use super::seal::{Keyring, SealError};

/// First byte of a cursor. Another form of cursors gets another one.
const VERSION: u8 = 1;
const TAG_BYTES: usize = 16;
const POSITION_BYTES: usize = 8;

impl Keyring {
    /// Makes the cursor of a position in an account's feed.
    ///
    /// # Errors
    /// [`SealError::NotCurrent`] before the database's keys are loaded.
    pub fn cursor(&self, shard: ShardId, account: AccountId, position: Position) -> Result<String, SealError> {
        let tag = self.cursor_tag(shard, account, position)?;
        let sealed = self.mask(&tag, position.to_be_bytes())?;
        Ok(URL_SAFE_NO_PAD.encode([&[VERSION][..], &tag, &sealed].concat()))
    }

    /// Returns the position of a cursor, or none if it was not made for this account's feed.
    ///
    /// # Errors
    /// [`SealError::NotCurrent`] before the database's keys are loaded.
    pub fn cursor_position(&self, shard: ShardId, account: AccountId, cursor: &str) -> Result<Option<Position>, SealError> {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(cursor) else { return Ok(None) };
        let Some((&VERSION, rest)) = bytes.split_first() else { return Ok(None) };
        let Some((tag, sealed)) = rest.split_first_chunk::<TAG_BYTES>() else { return Ok(None) };
        let Ok(sealed) = <[u8; POSITION_BYTES]>::try_from(sealed) else { return Ok(None) };
        let position = Position::from_be_bytes(self.mask(tag, sealed)?);
        let expected = self.cursor_tag(shard, account, position)?;
        Ok(bool::from(expected.ct_eq(tag)).then_some(position).filter(|position| *position >= 0))
    }

    fn cursor_tag(&self, shard: ShardId, account: AccountId, position: Position) -> Result<[u8; TAG_BYTES], SealError> {
        let parts: [&[u8]; 3] = [&shard.to_be_bytes(), &account.0.to_be_bytes(), &position.to_be_bytes()];
        let hash = self.row_hash("event cursor", &parts)?;
        Ok(*hash.first_chunk().unwrap_or(&[0; TAG_BYTES]))
    }

    /// Encrypts or decrypts a position.
    fn mask(&self, tag: &[u8; TAG_BYTES], position: [u8; POSITION_BYTES]) -> Result<[u8; POSITION_BYTES], SealError> {
        let mask = self.row_hash("event cursor position", &[tag])?;
        let mut masked = position;
        masked.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        Ok(masked)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn keyring_with_roots() -> Keyring {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        let roots = keyring.new_roots(keyring.first().unwrap()).unwrap();
        assert!(keyring.use_roots(roots));
        keyring
    }

    #[test]
    fn a_cursor_is_valid_for_its_account_alone() {
        let keyring = keyring_with_roots();
        for position in [0, 1, 4_711, Position::MAX] {
            let cursor = keyring.cursor(1, AccountId(7), position).unwrap();
            assert_eq!(keyring.cursor_position(1, AccountId(7), &cursor), Ok(Some(position)));
            assert_eq!(keyring.cursor_position(1, AccountId(8), &cursor), Ok(None));
            assert_eq!(keyring.cursor_position(2, AccountId(7), &cursor), Ok(None));
        }
    }

    #[test]
    fn a_changed_cursor_is_refused() {
        let keyring = keyring_with_roots();
        let cursor = keyring.cursor(1, AccountId(7), 42).unwrap();
        for at in 0..cursor.len() {
            let mut other = cursor.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keyring.cursor_position(1, AccountId(7), std::str::from_utf8(&other).unwrap()), Ok(None), "{at}");
        }
        for wrong in ["", "0", "42", "not base64!", &cursor[1..], &format!("{cursor}A"), &format!("{cursor}AAAA")] {
            assert_eq!(keyring.cursor_position(1, AccountId(7), wrong), Ok(None), "{wrong}");
        }
    }

    #[test]
    fn near_positions_have_cursors_that_tell_nothing() {
        let keyring = keyring_with_roots();
        let (one, next) = (keyring.cursor(1, AccountId(7), 1).unwrap(), keyring.cursor(1, AccountId(7), 2).unwrap());
        assert_eq!(one, keyring.cursor(1, AccountId(7), 1).unwrap());
        let equal = one.bytes().zip(next.bytes()).skip(1).filter(|(one, next)| one == next).count();
        assert!(equal < one.len() / 2, "{one} {next}");
    }
}
