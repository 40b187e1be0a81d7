//! Steps of the signers and of the database under them.

use chrono::DateTime;
use ledger_events::log::LogIncidentRecorded;
use rewards_ledger::transparency::Refusal;
use rewards_ledger::transparency::incidents::{self, Incident};
use rewards_ledger::transparency::signer_state::Remembered;
use rewards_ledger::transparency::store::Published;

use super::{Refused, SignerModel, State, Tables, Tree};

/// A node does not sign, and stores why.
struct Contradiction;

impl SignerModel {
    /// Commits a transaction. A synchronous commit ends once the standby has it, and with it everything before.
    pub(super) fn commit(&self, state: &mut State, waits: bool, change: impl FnOnce(&mut Tables)) {
        let before = state.tables.clone();
        change(&mut state.tables);
        if waits && self.is_synchronous && self.guards.events_wait {
            state.before.clear();
        } else if state.tables != before {
            state.before.push(before);
        }
    }

    /// Appends an event to the log.
    pub(super) fn append(&self, state: &mut State, and: impl FnOnce(&mut Tables)) {
        let event = state.drawn;
        state.drawn += 1;
        self.commit(state, true, |tables| {
            tables.log.push(event);
            and(tables);
        });
    }

    pub(super) fn record_incident(&self, state: &mut State) {
        // The operator names the node that remembers the largest tree.
        let size = |refused: &Refused| refused.remembered.as_ref().map(|tree| tree.events.len());
        let Some(origin) = state.tables.open_refusals().max_by_key(|refused| size(refused)).map(|refused| refused.origin) else {
            return;
        };
        state.left.incidents -= 1;
        state.origins += 1;
        let next = if self.guards.new_origins { state.origins } else { origin };
        self.append(state, |tables| tables.incidents.push((tables.log.len() as u8, origin, next)));
    }

    /// Takes one step of a node that holds the tree. If it dies, it does so between its state file and the commit.
    pub(super) fn step(&self, state: &mut State, node: usize, dies: bool) {
        let origin = state.tables.origin();
        let known = known(state, node, origin).cloned();
        let is_contradicted = known.as_ref().is_some_and(|known| !state.tables.log.starts_with(&known.events));
        let Some(mut tables) = self.met(state, node, origin, is_contradicted, true) else { return };
        let size = tables.newest.as_ref().map_or(0, |newest| newest.events.len());
        // A tree that was remembered and not committed is signed first, as it was.
        let end = known.map_or(0, |known| known.events.len()).max(size);
        let end = if end > size { end.min(tables.log.len()) } else { tables.log.len() };
        let grown = tables.log[..end].to_vec();
        if self.withdraw(&mut tables, node).is_err() {
            return self.refuse(state, node, origin);
        }
        let is_published = tables.newest.as_ref().is_some_and(|newest| (newest.origin, &newest.events) == (origin, &grown));
        let has_heard = !self.guards.waits || tables.compared.iter().all(|server| *server == state.server);
        if is_published || !has_heard {
            if is_published {
                self.learn(state, node, origin);
            }
            return self.commit(state, false, |present| *present = tables);
        }
        let tree = Tree { origin, events: grown, epoch: tables.epoch };
        let has_open = tables.open_refusals().next().is_some();
        tables.newest = Some(tree.clone());
        let keep = |state: &mut State| keep(&mut state.files[node], &tree);
        let publish = |state: &mut State| {
            self.commit(state, false, |present| *present = tables);
            state.has_signed_refused |= has_open;
            state.signed.push(tree.clone());
            state.signed.sort();
            state.signed.dedup();
        };
        match (dies, self.guards.keeps_first) {
            (false, _) => {
                keep(state);
                publish(state);
            }
            (true, true) => keep(state),
            (true, false) => publish(state),
        }
    }

    /// Takes one step of a node while another one holds the tree. The node sees that one's last checkpoint, and not its growth.
    pub(super) fn step_elsewhere(&self, state: &mut State, node: usize) {
        let origin = state.tables.origin();
        let known = known(state, node, origin);
        let newest = state.tables.newest.as_ref().map_or(&[][..], |newest| &newest.events[..]);
        let reaches = known.is_none_or(|known| newest.len() >= known.events.len());
        let is_contradicted = reaches && known.is_some_and(|known| !newest.starts_with(&known.events));
        let appears = reaches || !self.guards.appears_compared;
        let Some(tables) = self.met(state, node, origin, is_contradicted, appears) else { return };
        self.learn(state, node, origin);
        self.commit(state, false, |present| *present = tables);
    }

    /// Compares the head with the node's state, and meets the others. Returns the tables with what the node tells them, or none
    /// if something speaks against signing. `appears`: the node has compared everything that it remembers.
    fn met(&self, state: &mut State, node: usize, origin: u8, is_contradicted: bool, appears: bool) -> Option<Tables> {
        let is_contradicted = is_contradicted || is_behind(&state.tables, known(state, node, origin));
        if self.guards.compares && is_contradicted {
            self.refuse(state, node, origin);
            return None;
        }
        let is_refused = state.tables.open_refusals().any(|refused| refused.node != node);
        if is_refused && self.guards.heeds_refusals {
            return None;
        }
        let mut tables = state.tables.clone();
        if appears {
            tables.compared[node] = state.server;
        }
        Some(tables)
    }

    /// Withdraws the node's own refusals, if the log agrees with what the node remembered then.
    fn withdraw(&self, tables: &mut Tables, node: usize) -> Result<(), Contradiction> {
        let own: Vec<Refused> = tables.open_refusals().filter(|refused| refused.node == node).cloned().collect();
        if own.iter().any(|refused| contradicts(tables, refused.remembered.as_ref())) {
            return Err(Contradiction);
        }
        if !own.is_empty() {
            tables.refusals.retain(|refused| refused.node != node);
        }
        Ok(())
    }

    /// Stores a refusal. While it is open, the tree that was stored first stays.
    fn refuse(&self, state: &mut State, node: usize, origin: u8) {
        state.have_refused[node] = true;
        if !self.guards.stores_refusals {
            return;
        }
        let remembered = known(state, node, origin).cloned();
        self.commit(state, true, |tables| {
            let head = tables.log.len();
            match tables.refusals.iter_mut().find(|refused| (refused.node, refused.origin) == (node, origin)) {
                Some(refused) => {
                    refused.head = head;
                    refused.remembered = refused.remembered.take().or(remembered);
                }
                None => tables.refusals.push(Refused { node, origin, head, remembered }),
            }
        });
    }

    /// Remembers a tree that another node has signed.
    fn learn(&self, state: &mut State, node: usize, origin: u8) {
        let epoch = state.tables.epoch;
        let Some(newest) = state.tables.newest.as_ref().filter(|newest| newest.origin == origin) else { return };
        let tree = Tree { epoch, ..newest.clone() };
        let file = &mut state.files[node];
        if !file.iter().any(|known| known.origin == origin && known.events.len() > tree.events.len()) {
            keep(file, &tree);
        }
    }
}

impl Tables {
    /// Returns the refusals that no incident has ended (`refusals` in `src/transparency/peers.rs`).
    pub fn open_refusals(&self) -> impl Iterator<Item = &Refused> {
        self.refusals.iter().filter(|refused| {
            let ends = |(position, origin, _): &(u8, u8, u8)| usize::from(*position) > refused.head || *origin == refused.origin;
            !self.incidents.iter().any(ends)
        })
    }

    fn incidents(&self) -> Vec<Incident> {
        let incident = |&(position, origin, next): &(u8, u8, u8)| Incident {
            position: position.into(),
            recorded_at: DateTime::UNIX_EPOCH,
            event: LogIncidentRecorded {
                origin: origin.to_string(),
                next_origin: next.to_string(),
                signed: None,
                kept: None,
                refusal: String::new(),
                reason_hash: String::new(),
            },
        };
        self.incidents.iter().map(incident).collect()
    }

    /// Returns the present origin, by the log's own rule.
    fn origin(&self) -> u8 {
        incidents::present("0".to_owned(), &self.incidents()).parse().expect("the number of an origin")
    }

    /// Returns whether an incident has ended the log of the newest checkpoint, by the log's own rule.
    fn has_ended(&self, newest: &Tree) -> bool {
        let published = Published {
            origin: newest.origin.to_string(),
            size: newest.events.len() as u64,
            root: [0; 32],
            note: String::new(),
            signed_at: DateTime::UNIX_EPOCH,
        };
        incidents::have_ended(&published, &self.incidents())
    }
}

/// Returns the tree that a node remembers of an origin, or else of the newest checkpoint's (`or_before` in
/// `src/transparency/projector.rs`).
fn known(state: &State, node: usize, origin: u8) -> Option<&Tree> {
    let recall = |origin: u8| state.files[node].iter().find(|tree| tree.origin == origin);
    let newest = state.tables.newest.as_ref().filter(|newest| !state.tables.has_ended(newest));
    recall(origin).or_else(|| recall(newest?.origin))
}

/// Returns whether the log is shorter or older than what was signed, by the signer's own rule.
fn is_behind(tables: &Tables, known: Option<&Tree>) -> bool {
    let size = tables.newest.as_ref().map_or(0, |newest| newest.events.len());
    let known = known.map(remembered);
    Refusal::by_head(tables.log.len() as i64, tables.epoch.into(), size as u64, known.as_ref()).is_some()
}

/// Returns whether the log contradicts a remembered tree (`consistent` and `grow` in `src/transparency/projector.rs`).
fn contradicts(tables: &Tables, known: Option<&Tree>) -> bool {
    is_behind(tables, known) || known.is_some_and(|known| !tables.log.starts_with(&known.events))
}

/// Replaces the remembered tree of an origin, unless the new one contradicts it.
fn keep(file: &mut Vec<Tree>, tree: &Tree) {
    let Some(known) = file.iter_mut().find(|known| known.origin == tree.origin) else { return file.push(tree.clone()) };
    if !remembered(known).contradicts(&remembered(tree)) {
        *known = tree.clone();
    }
}

/// Returns a tree as the state file has it. Its root is made of its events, so that it is another one for other events.
fn remembered(tree: &Tree) -> Remembered {
    let mut root = [0; 32];
    root[..tree.events.len()].copy_from_slice(&tree.events);
    Remembered { size: tree.events.len() as u64, root, epoch: tree.epoch.into() }
}
