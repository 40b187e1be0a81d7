//! The rows and ids that a batch of commands asks for, before anything is loaded.

use std::collections::HashSet;

use ledger_events::{OrderId, ProductId, ShardId};

use super::erasure::{Part, Subject};
use super::ids::NewIds;
use super::keys::Owner;
use super::stock::NewVoucher;
use super::streams::StreamReads;

/// Everything that the commands of a batch read.
#[derive(Debug, Default)]
pub struct ReadSet<'a> {
    pub shard: ShardId,
    pub streams: StreamReads<'a>,
    pub new_ids: NewIds,
    /// Hashes of idempotency keys.
    pub keys: Vec<[u8; 32]>,
    pub data_keys: HashSet<Owner>,
    /// Texts in the vault, by kind and id.
    pub texts: Vec<(&'static str, i64)>,
    /// Vouchers that may be in the stock already.
    pub uploads: Vec<(ProductId, &'a [NewVoucher])>,
    /// References of vouchers that commands name.
    pub named_vouchers: Vec<&'a [String]>,
    /// Products that get vouchers of other products, and the references of these.
    pub transfers: Vec<(ProductId, &'a [String])>,
    /// Orders that vouchers are allocated to.
    pub fulfilled: Vec<OrderId>,
    pub erased: Option<(Subject, &'a Part)>,
}

impl ReadSet<'_> {
    /// Returns whether the stock of other shards is read, too.
    pub fn need_all_stock(&self) -> bool {
        !self.uploads.is_empty() || !self.transfers.is_empty() || !self.streams.purchases.query.demands.is_empty()
    }
}
