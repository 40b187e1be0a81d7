//! The decisions of Postgres about the head of the log: which statement is written, what others see, and what a failover keeps.

use super::{Batch, Guards, Head};

/// The primary's write-ahead log, and how much of it others have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Database {
    records: Vec<Record>,
    /// Number of records that the synchronous standby has.
    replicated: usize,
    /// Number of records that are visible whether a standby has them or not, because the primary was started again since.
    recovered: usize,
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Record {
    /// A batch: each event's position and id, and responses by key.
    Batch { events: Vec<(u8, u8)>, responses: Vec<(u8, u8)> },
    /// A raised `log_head.epoch`, with its new value.
    Epoch(u8),
}

/// One statement of a batch, with the head that it was made for (`src/ledger/write.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statement {
    pub from: Head,
    /// Events that the batch was decided on.
    pub basis: Vec<u8>,
    pub batch: Batch,
    /// Responses that earlier batches leave in memory.
    pub unflushed: Vec<(u8, u8)>,
}

impl Statement {
    /// Returns whether the statement writes nothing (`Batch::is_empty` in `src/ledger/batch.rs`).
    pub fn is_empty(&self) -> bool {
        self.batch.events.is_empty() && self.batch.responses.is_empty()
    }

    /// Returns the log after the batch, as the node sees it.
    pub fn log(&self) -> Vec<u8> {
        [&self.basis[..], &self.batch.events[..]].concat()
    }

    /// Returns the head after the batch (`Batch::into_cache` in `src/ledger/batch.rs`).
    pub fn end(&self) -> Head {
        let events = &self.batch.events;
        Head {
            position: self.from.position + events.len() as u8,
            last_event: events.last().copied().or(self.from.last_event),
            epoch: self.from.epoch,
        }
    }
}

impl Database {
    /// Returns the ids of all events.
    pub fn log(&self) -> impl Iterator<Item = u8> {
        self.events().map(|(_, event)| event)
    }

    pub fn positions(&self) -> impl Iterator<Item = u8> {
        self.events().map(|(position, _)| position)
    }

    fn events(&self) -> impl Iterator<Item = (u8, u8)> {
        self.records
            .iter()
            .flat_map(|record| match record {
                Record::Batch { events, .. } => &events[..],
                Record::Epoch(_) => &[],
            })
            .copied()
    }

    /// Returns the number of events of a request.
    pub fn events_of(&self, request: u8) -> usize {
        self.log().filter(|event| event / 16 == request).count()
    }

    /// Returns the stored responses: key and request.
    pub fn responses(&self) -> impl Iterator<Item = (u8, u8)> {
        self.records
            .iter()
            .flat_map(|record| match record {
                Record::Batch { responses, .. } => &responses[..],
                Record::Epoch(_) => &[],
            })
            .copied()
    }

    /// Returns the responses that a reader without a lock sees.
    pub fn visible_responses(&self, is_synchronous: bool) -> Vec<(u8, u8)> {
        let mut visible = self.clone();
        if is_synchronous {
            visible.records.truncate(self.replicated.max(self.recovered));
        }
        visible.responses().collect()
    }

    /// Returns the row of `log_head`, with the event at its position.
    pub fn head(&self) -> Head {
        let (position, last_event) = self.events().last().unzip();
        let epochs = self.records.iter().filter_map(|record| match record {
            Record::Epoch(epoch) => Some(*epoch),
            Record::Batch { .. } => None,
        });
        Head { position: position.unwrap_or_default(), last_event, epoch: epochs.max().unwrap_or_default() }
    }

    /// Returns whether a transaction holds the lock of the head, because its commit waits for the standby.
    pub fn is_held(&self, is_synchronous: bool) -> bool {
        is_synchronous && self.records.len() > self.replicated.max(self.recovered)
    }

    pub fn has_unreplicated(&self) -> bool {
        self.records.len() > self.replicated
    }

    pub fn records(&self) -> usize {
        self.records.len()
    }

    pub fn replicated(&self) -> usize {
        self.replicated
    }

    fn has_response(&self, key: u8) -> bool {
        self.responses().any(|response| response.0 == key)
    }

    /// Returns whether the statement's condition on the head holds (`push_condition` in `src/ledger/head.rs`), the primary key of
    /// `idempotency_keys` allows its responses, and the responses exist that it repeats (`src/ledger/write.rs`).
    pub fn accepts(&self, statement: &Statement, guards: &Guards) -> bool {
        let (head, from) = (self.head(), statement.from);
        let event_there = self.events().find(|(position, _)| *position == from.position).map(|(_, event)| event);
        (!guards.position || head.position == from.position)
            && head.epoch == from.epoch
            && (!guards.last_event || event_there == from.last_event)
            && (!guards.unique_keys || !statement.batch.responses.iter().any(|(key, _)| self.has_response(*key)))
            && (!guards.repeats_exist || statement.batch.repeated.iter().all(|key| self.has_response(*key)))
    }

    /// Writes a batch.
    pub fn append(&mut self, statement: &Statement) {
        let events = (statement.from.position + 1..).zip(statement.batch.events.iter().copied()).collect();
        self.records.push(Record::Batch { events, responses: statement.batch.responses.clone() });
    }

    /// Raises the epoch beyond the present one, and beyond another one.
    pub fn raise_epoch(&mut self, other: u8) {
        self.records.push(Record::Epoch(self.head().epoch.max(other) + 1));
    }

    pub fn replicate(&mut self) {
        self.replicated = self.records.len();
    }

    /// Continues on a server that lacks the last records.
    pub fn fail_over(&mut self, lost: usize) {
        self.records.truncate(self.records.len() - lost);
        self.replicated = self.records.len();
        self.recovered = self.records.len();
    }

    pub fn restart(&mut self) {
        self.recovered = self.records.len();
    }
}
