//! Names of the actors of events, from the vault and the tables beside the log.

use std::collections::{HashMap, HashSet};

use ledger_database::{PgPool, replanned};
use ledger_events::account::Credential;
use ledger_events::{Actor, ShardId, UserId};
use ledger_projections::state::State as _;

use super::texts::{self, EMAIL, OPERATOR_EMAIL, VaultError};
use super::{FIRST_SHARD, operators};
use crate::secrets::seal::{Keyring, Secret};

/// Names by actor. An actor without a name, or whose name was erased, is absent.
pub type ActorNames = HashMap<Actor, Secret>;

/// Loads the names of these actors with one statement for each kind. Without the master key, only names of credentials and
/// of tokens can be read.
pub async fn names(
    pool: &PgPool,
    keyring: Option<&Keyring>,
    shard: ShardId,
    actors: &HashSet<Actor>,
) -> Result<ActorNames, VaultError> {
    let mut names = ActorNames::new();
    let credentials = ids(actors, |actor| if let Actor::Credential(id) = actor { Some(id) } else { None });
    if !credentials.is_empty() {
        let found = replanned(async || Credential::load(&mut *pool.acquire().await?, shard, &credentials).await).await?;
        names.extend(found.into_iter().map(|credential| (Actor::Credential(credential.id), Secret::new(credential.name))));
    }
    let of_service = ids(actors, |actor| if let Actor::Operator(id) = actor { Some(id) } else { None });
    if !of_service.is_empty() {
        let found = operators::names(pool, &of_service).await?;
        names.extend(found.into_iter().map(|(id, name)| (Actor::Operator(id), Secret::new(name))));
    }
    let Some(keyring) = keyring else { return Ok(names) };
    let users = ids(actors, |actor| if let Actor::User(id) = actor { Some((EMAIL, id.0)) } else { None });
    let found = texts::load(pool, keyring, shard, &users).await?;
    names.extend(found.into_iter().map(|((_, id), name)| (Actor::User(UserId(id)), name)));
    let of_service: Vec<_> = of_service.into_iter().map(|id| (OPERATOR_EMAIL, id)).collect();
    let found = texts::load(pool, keyring, FIRST_SHARD, &of_service).await?;
    names.extend(found.into_iter().map(|((_, id), name)| (Actor::Operator(id), name)));
    Ok(names)
}

/// Selects the ids of one kind of actors.
fn ids<T>(actors: &HashSet<Actor>, id: fn(Actor) -> Option<T>) -> Vec<T> {
    actors.iter().copied().filter_map(id).collect()
}
