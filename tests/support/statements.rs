//! Statements that a client of Postgres sends, counted in the bytes of its connection.

/// Text of the check of a connection that was idle, which is no statement of a page.
const CHECK: &[u8] = b"SQLx ping";
/// Code of the message that asks for TLS, which comes before the start of a session.
const TLS_REQUEST: [u8; 4] = 80_877_103_i32.to_be_bytes();

/// The part of a client's bytes that is not a whole message yet.
#[derive(Debug, Default)]
pub struct Messages {
    pending: Vec<u8>,
    /// Whether the session has started. Messages before its start have no type.
    is_started: bool,
}

impl Messages {
    /// Takes the next bytes. Returns the number of statements that they run: messages Execute, and Query but for checks of the
    /// connection.
    pub fn statements(&mut self, bytes: &[u8]) -> usize {
        self.pending.extend_from_slice(bytes);
        let mut statements = 0;
        loop {
            let kind = usize::from(self.is_started);
            let Some(length) = self.pending.get(kind..kind + 4) else { return statements };
            let length = kind + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.pending.len() < length {
                return statements;
            }
            let message: Vec<u8> = self.pending.drain(..length).collect();
            let is_check = || message.windows(CHECK.len()).any(|window| window == CHECK);
            match self.is_started {
                true => statements += usize::from(message[0] == b'E' || (message[0] == b'Q' && !is_check())),
                false => self.is_started = message.get(4..8) != Some(&TLS_REQUEST),
            }
        }
    }
}
