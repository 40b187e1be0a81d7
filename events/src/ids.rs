//! Ids as types of their own, so that a wallet's id cannot pass for an order's.
//!
//! Only [`Id::new`] and the constructors make an id of a number: there is no `From<i64>`. JSON and the database see
//! the bare number.
//!
//! New ids tell their shard: those of shard n > 1 are n * [`IDS_PER_SHARD`] plus a number of the sequence, and those of
//! the first shard are the number alone. Smaller ids of other shards are older than this rule.

use std::fmt::{Debug, Display, Formatter, Result as FmtResult};
use std::hash::Hash;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ShardId;

/// Number of ids between the first ids of two shards. More than any sequence will reach.
pub const IDS_PER_SHARD: i64 = 10_000_000_000_000;
/// Greatest number of a shard. JavaScript reads integers below 2^53 exactly, and the ids of this shard stay below it.
pub const MAX_SHARD: ShardId = 900;

/// Returns the number that a shard adds to those of a sequence to make ids. A shard above [`MAX_SHARD`], which only a head that was
/// made by hand can have, adds none.
pub fn id_base(shard: ShardId) -> i64 {
    if (2..=MAX_SHARD).contains(&shard) { i64::from(shard) * IDS_PER_SHARD } else { 0 }
}

/// An id that one database sequence assigns. Code that serves every stream uses it.
pub trait Id: Copy + Debug + Display + Eq + Hash + Ord + Send + Sync + 'static {
    fn new(number: i64) -> Self;

    fn number(self) -> i64;

    /// Returns the shard that the id tells, which may be none of the ledger's. An id of the first shard tells none, and
    /// neither does an older id of any other.
    fn shard(self) -> Option<ShardId> {
        let shard = self.number() / IDS_PER_SHARD;
        (shard > 0).then(|| ShardId::try_from(shard).unwrap_or(ShardId::MAX))
    }

    /// Returns those of all shards in which the id can be: the one that it tells, or any.
    fn shards_among(self, all: &[ShardId]) -> Vec<ShardId> {
        all.iter().copied().filter(|shard| self.shard().is_none_or(|told| told == *shard)).collect()
    }

    /// Returns the number of the sequence that the id was made of.
    fn sequence_number(self) -> i64 {
        self.number() % IDS_PER_SHARD
    }
}

/// The ids of streams that have no type of their own: operators' tokens, IP blocks, API versions and logs.
impl Id for i64 {
    fn new(number: i64) -> i64 {
        number
    }

    fn number(self) -> i64 {
        self
    }
}

/// Declares ids. `Debug` prints the bare number, as `Display` does.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl Id for $name {
            fn new(number: i64) -> Self {
                Self(number)
            }

            fn number(self) -> i64 {
                self.0
            }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
                Display::fmt(&self.0, f)
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
                Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map(Self)
            }
        }

        #[cfg(feature = "sqlx")]
        bigint!($name);
    )*};
}

/// Stores an id as a `bigint`. sqlx derives the type of arrays only if its driver is built for the host, too.
#[cfg(feature = "sqlx")]
macro_rules! bigint {
    ($name:ident) => {
        impl sqlx::Type<sqlx::Postgres> for $name {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                <i64 as sqlx::Type<sqlx::Postgres>>::type_info()
            }

            fn compatible(column: &sqlx::postgres::PgTypeInfo) -> bool {
                <i64 as sqlx::Type<sqlx::Postgres>>::compatible(column)
            }
        }

        impl sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> sqlx::postgres::PgTypeInfo {
                <i64 as sqlx::postgres::PgHasArrayType>::array_type_info()
            }

            fn array_compatible(column: &sqlx::postgres::PgTypeInfo) -> bool {
                <i64 as sqlx::postgres::PgHasArrayType>::array_compatible(column)
            }
        }

        impl sqlx::Encode<'_, sqlx::Postgres> for $name {
            #[inline]
            fn encode_by_ref(
                &self,
                buffer: &mut sqlx::postgres::PgArgumentBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                sqlx::Encode::<sqlx::Postgres>::encode_by_ref(&self.0, buffer)
            }
        }

        impl sqlx::Decode<'_, sqlx::Postgres> for $name {
            #[inline]
            fn decode(value: sqlx::postgres::PgValueRef<'_>) -> Result<Self, sqlx::error::BoxDynError> {
                <i64 as sqlx::Decode<sqlx::Postgres>>::decode(value).map(Self)
            }
        }
    };
}

ids! {
    /// Id of an account. Ids that clients see come from one database sequence per kind for all shards, and stay below
    /// 2^53.
    AccountId
    ApprovalId
    BeneficiaryId
    CredentialId
    DecisionId
    CategoryId
    OrderId
    PayoutId
    ProductId
    PurchaseId
    ReplayId
    StatementId
    TransactionId
    UserId
    WalletId
    WebhookId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_and_prints_as_its_bare_number() {
        let id: OrderId = "42".parse().unwrap();
        assert_eq!(id, OrderId(42));
        assert_eq!(format!("{id} {id:?} {id:>4}"), "42 42   42");
        assert_eq!(serde_json::to_string(&[id]).unwrap(), "[42]");
        assert_eq!(serde_json::from_str::<Option<OrderId>>("42").unwrap(), Some(id));
        assert!("x".parse::<OrderId>().is_err() && serde_json::from_str::<OrderId>("\"42\"").is_err());
    }

    #[test]
    fn an_id_tells_its_shard_unless_it_is_plain() {
        assert_eq!((id_base(1), id_base(2), id_base(17)), (0, 20_000_000_000_000, 170_000_000_000_000));
        for (id, shard, number) in [
            (0, None, 0),
            (42, None, 42),
            (IDS_PER_SHARD - 1, None, IDS_PER_SHARD - 1),
            (id_base(2) + 42, Some(2), 42),
            (id_base(3) - 1, Some(2), IDS_PER_SHARD - 1),
            (id_base(17) + 1, Some(17), 1),
            (id_base(MAX_SHARD) + 42, Some(900), 42),
            (-42, None, -42),
            (i64::MIN, None, i64::MIN % IDS_PER_SHARD),
        ] {
            assert_eq!((OrderId(id).shard(), id.sequence_number()), (shard, number), "{id}");
        }
    }

    #[test]
    fn a_plain_id_can_be_in_any_shard_and_another_in_the_one_that_it_tells() {
        let all = [1, 2, 17];
        let among = |id: i64| WalletId(id).shards_among(&all);
        assert_eq!(among(42), all);
        assert_eq!(among(id_base(2) + 42), [2]);
        // The ledger has no such shard.
        for id in [id_base(3) + 42, i64::MAX] {
            assert!(among(id).is_empty(), "{id}");
        }
    }

    #[test]
    fn javascript_reads_the_ids_of_every_shard_exactly() {
        // 10,000 ids a second for 22 years.
        let many = 7_000_000_000_000;
        assert!(id_base(MAX_SHARD) + many < 1 << 53);
    }
}
