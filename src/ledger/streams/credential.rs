//! API credentials.

use std::collections::HashSet;

use ledger_events::account::Credential;
use ledger_events::{CredentialId, ShardId};

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::lookup::Lookup;

#[derive(Debug, Default)]
pub struct Index {
    /// Signing secrets, sealed.
    pub signing_secrets: Lookup<CredentialId, Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Credentials whose signing secret is read.
    pub signing_secrets: HashSet<CredentialId>,
}

impl Stream for Credential {
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "credential";
    const SEQUENCE: Option<&'static str> = Some("credential_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        let wanted: Vec<_> = read.query.signing_secrets.iter().copied().collect();
        if !wanted.is_empty() {
            let known: Vec<(CredentialId, Vec<u8>)> = sqlx::query_as(
                "SELECT credential_id, signing_secret FROM vault.credentials WHERE credential_id = ANY($1) AND signing_secret IS NOT NULL",
            )
            .bind(&wanted)
            .fetch_all(&mut *loader.conn)
            .await?;
            slot.index.signing_secrets.ask(wanted);
            slot.index.signing_secrets.extend(known);
        }
        Ok(())
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
