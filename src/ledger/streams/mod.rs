//! The streams: how the writer loads, evolves and writes each.
//!
//! A new stream is a file that implements [`Stream`] for its state, and a line in the list of [`streams!`].

mod account;
mod api_version;
mod approval;
mod beneficiary;
mod category;
mod credential;
mod ip_block;
mod log;
mod operator;
mod order;
mod payout;
mod product;
mod purchase;
mod replay;
mod shard;
mod statement;
mod user;
mod verification;
mod wallet;
mod webhook;

use ledger_database::PgConnection;
use ledger_events::account::{Account, Credential};
use ledger_events::approval::Approval;
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::purchase::Purchase;
use ledger_events::reconciliation::BankStatement;
use ledger_events::replay::Replay;
use ledger_events::shard::Shard;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::webhook::Webhook;
use ledger_events::{ShardId, id_base};
use ledger_projections::ProjectionError;

use super::stream::{FollowUps, Loader, Slot, Stream, StreamRead};
pub use api_version::{ApiVersion, V1};
pub use ip_block::IpBlock;
pub use log::TransparencyLog;
pub use operator::Operator;
pub use purchase::Asked;
pub use verification::Verification;

/// Implements [`Stream`] by the state's row and fold in its projection. `written` also writes the rows, and `folded` leaves the rows
/// to the stream.
macro_rules! projected {
    (written) => {
        projected!();

        async fn write(
            conn: &mut ledger_database::PgConnection,
            shard: ledger_events::ShardId,
            rows: &[&Self],
        ) -> Result<(), ledger_projections::ProjectionError> {
            <Self as ledger_projections::state::Upsert>::write(conn, shard, rows).await
        }
    };
    () => {
        projected!(folded);

        async fn load(
            conn: &mut ledger_database::PgConnection,
            shard: ledger_events::ShardId,
            ids: &[Self::Id],
        ) -> Result<Vec<Self>, sqlx::Error> {
            <Self as ledger_projections::state::State>::load(conn, shard, ids).await
        }
    };
    (folded) => {
        type Id = <Self as ledger_projections::state::State>::Id;
        type Event = <Self as ledger_projections::state::State>::Event;

        fn id(&self) -> Self::Id {
            ledger_projections::state::State::id(self)
        }

        fn version(&self) -> i64 {
            ledger_projections::state::State::version(self)
        }

        fn evolve(state: Option<Self>, id: Self::Id, event: &Self::Event, at: &ledger_events::Moment) -> Option<Self> {
            <Self as ledger_projections::state::State>::evolve(state, id, event, at)
        }
    };
}
use projected;

/// A stream that has a slot in every batch.
pub trait InSlot: Stream {
    fn slot(streams: &mut Streams) -> &mut Slot<Self>;
}

/// Declares the streams. A batch loads and writes them in the order of the list.
macro_rules! streams {
    ($($field:ident: $state:ty),* $(,)?) => {
        /// The slot of every stream.
        #[derive(Debug, Default)]
        pub struct Streams { $(pub $field: Slot<$state>),* }

        /// The reads of every stream.
        #[derive(Debug, Default)]
        pub struct StreamReads<'a> { $(pub $field: StreamRead<'a, $state>),* }

        $(impl InSlot for $state {
            fn slot(streams: &mut Streams) -> &mut Slot<Self> { &mut streams.$field }
        })*

        impl Streams {
            /// Draws the ids that a batch of a shard lacks.
            pub async fn refill(
                &mut self,
                conn: &mut PgConnection,
                shard: ShardId,
                reads: &StreamReads<'_>,
            ) -> Result<(), sqlx::Error> {
                $(self.$field.ids.refill(conn, reads.$field.new, id_base(shard)).await?;)*
                Ok(())
            }

            /// Loads what commands ask for and the slots lack. Returns the data keys and texts that follow from the rows.
            pub async fn fetch(
                &mut self,
                conn: &mut PgConnection,
                shard: ShardId,
                reads: &mut StreamReads<'_>,
            ) -> Result<FollowUps, sqlx::Error> {
                let mut loader = Loader { conn, shard, follow_ups: FollowUps::default() };
                $(
                    <$state>::fetch(&mut self.$field, &mut reads.$field, &mut loader).await?;
                    self.follow(&mut loader.follow_ups, reads);
                )*
                Ok(loader.follow_ups)
            }

            /// Writes the rows of streams with events in this batch.
            pub async fn write(&self, conn: &mut PgConnection, shard: ShardId) -> Result<(), ProjectionError> {
                $(<$state>::write(conn, shard, &self.$field.touched()).await?;)*
                Ok(())
            }

            /// Returns the number of states of each stream.
            pub fn sizes(&self) -> impl Iterator<Item = usize> {
                [$(self.$field.len()),*].into_iter()
            }

            /// Drops every state. Ids that were drawn stay.
            pub fn forget(&mut self) { $(self.$field.forget();)* }

            /// Drops what the writer's cache must not keep after a batch.
            pub fn drop_uncached(&mut self, shard: ShardId) { $(self.$field.drop_uncached(shard);)* }

            /// Ends the batch: its events no longer count as new.
            pub fn end_batch(&mut self) { $(self.$field.end_batch();)* }
        }
    };
}

// Approvals ask for payouts and wallets, orders for accounts and wallets, and payouts for wallets, so these come later.
streams! {
    approvals: Approval,
    orders: Order,
    accounts: Account,
    credentials: Credential,
    users: User,
    products: Product,
    categories: Category,
    webhooks: Webhook,
    replays: Replay,
    beneficiaries: Beneficiary,
    payouts: Payout,
    statements: BankStatement,
    wallets: Wallet,
    ip_blocks: IpBlock,
    api_versions: ApiVersion,
    logs: TransparencyLog,
    operators: Operator,
    verifications: Verification,
    purchases: Purchase,
    shards: Shard,
}

impl Streams {
    /// Asks for the rows that follow from loaded ones.
    fn follow(&mut self, follow_ups: &mut FollowUps, reads: &mut StreamReads<'_>) {
        reads.accounts.ids.extend(follow_ups.accounts.drain(..));
        reads.payouts.ids.extend(follow_ups.payouts.drain(..));
        reads.wallets.ids.extend(follow_ups.wallets.drain(..));
        self.webhooks.ask(follow_ups.webhooks.drain(..));
    }
}
