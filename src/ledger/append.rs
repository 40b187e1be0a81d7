//! Appending of events to a batch, and sealing of the texts that they commit to.

use std::sync::Arc;

use ledger_events::{Id, Metadata, Moment};
use uuid::Uuid;

use super::batch::{Appended, Batch};
use super::context::CommandContext;
use super::keys::{NewKey, Owner};
use super::streams::InSlot;
use super::texts::SealedText;
use crate::secrets::seal::{DataKey, SealError, Secret, salted_hash};

impl Batch {
    /// Appends an event: assigns its position, evolves its stream's state, and marks the state to be written. Returns the
    /// event's id.
    #[track_caller]
    pub fn append<S: InSlot>(&mut self, id: S::Id, event: impl Into<S::Event>, context: &CommandContext<'_>) -> Uuid {
        let event = event.into();
        let event_id = self.next_event_id();
        let position = self.end() + 1;
        let slot = S::slot(&mut self.streams);
        let version = slot.get(id).map_or(0, S::version) + 1;
        let moment = Moment { position, event_id, version, recorded_at: self.head.recorded_at };
        slot.apply(id, &event, &moment);
        self.pending.transactions.extend(slot.loaded(id).and_then(|state| state.movement(&event, &moment)));
        let metadata = Metadata {
            actor: context.origin.actor,
            account_id: context.account_id,
            request_id: context.origin.request_id.clone(),
            correlation_id: context.correlation_id.unwrap_or(event_id),
            causation_id: context.causation_id,
            idempotency_key_hash: context.idempotency.map(|i| hex::encode(i.key_hash)),
            traceparent: context.traceparent.map(|place| place.to_string()),
        };
        self.pending.events.push(Appended { moment, stream_id: id.number(), event: event.into(), metadata });
        event_id
    }

    /// Seals a person's text for the vault under the person's data key. Returns the hash that the log commits to.
    pub fn keep_text_of(
        &mut self,
        owner: Owner,
        kind: &'static str,
        id: i64,
        salt: Vec<u8>,
        text: &Secret,
    ) -> Result<String, SealError> {
        let key = self.data_key(owner)?;
        self.keep(Some(key), kind, id, salt, text)
    }

    /// Seals a text of the service's own under the master key. Returns the hash that the log commits to.
    pub fn keep_text(&mut self, kind: &'static str, id: i64, salt: Vec<u8>, text: &Secret) -> Result<String, SealError> {
        self.keep(None, kind, id, salt, text)
    }

    fn keep(
        &mut self,
        key: Option<Arc<DataKey>>,
        kind: &'static str,
        id: i64,
        salt: Vec<u8>,
        text: &Secret,
    ) -> Result<String, SealError> {
        let hash = salted_hash(&salt, text.expose());
        let plain = text.expose().as_bytes();
        let sealed = match &key {
            Some(key) => key.seal(kind, id, plain)?,
            None => self.keyring.seal(kind, id, plain)?,
        };
        let text = SealedText { kind, id, salt, sealed, key };
        self.texts.insert((kind, id), text.clone());
        self.pending.texts.push(text);
        Ok(hash)
    }

    /// Returns a person's data key, and makes one for a person without. [`ReadSet`](super::read_set::ReadSet) must ask for it.
    pub fn data_key(&mut self, owner: Owner) -> Result<Arc<DataKey>, SealError> {
        match self.data_keys.get(&owner) {
            Some(Some(key)) => Ok(key.clone()),
            Some(None) => {
                let key = Arc::new(self.new_data_key(owner)?);
                self.data_keys.insert(owner, Some(key.clone()));
                Ok(key)
            }
            None => Err(SealError::NoDataKey(format!("{owner:?}"))),
        }
    }

    /// Makes the data key of an owner that has none.
    pub fn new_data_key(&mut self, owner: Owner) -> Result<DataKey, SealError> {
        let id = self.ids.data_keys.next().map_err(|_| SealError::NoDataKey(format!("{owner:?}")))?;
        let (key, sealed) = self.keyring.new_data_key(id)?;
        self.pending.keys.push(NewKey { id, owner, sealed });
        Ok(key)
    }
}
