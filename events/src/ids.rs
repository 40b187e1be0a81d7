//! Ids as types of their own, so that a wallet's id cannot pass for an order's.
//!
//! Only [`Id::new`] and the constructors make an id of a number: there is no `From<i64>`. JSON and the database see
//! the bare number.

use std::fmt::{Debug, Display, Formatter, Result as FmtResult};
use std::hash::Hash;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An id that one database sequence assigns. Code that serves every stream uses it.
pub trait Id: Copy + Debug + Display + Eq + Hash + Ord + Send + Sync + 'static {
    fn new(number: i64) -> Self;

    fn number(self) -> i64;
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
    /// Id of an account. Ids that clients see come from one database sequence per kind and stay below 2^53.
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
}
