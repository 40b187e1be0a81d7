//! Rows that commands may only read under keys that they asked for.
//!
//! A command asks for keys in [`reads`](super::commands::Handler::reads). Debug builds panic where one reads another key:
//! without that, a forgotten read is a wrong "not found" at run time.

use std::any::type_name;
use std::borrow::Borrow;
use std::collections::HashMap;
#[cfg(debug_assertions)]
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Keys that a batch asked for. Release builds keep none.
#[derive(Clone, Debug)]
pub struct Asked<K> {
    #[cfg(debug_assertions)]
    keys: HashSet<K>,
    #[cfg(not(debug_assertions))]
    keys: std::marker::PhantomData<K>,
}

impl<K> Default for Asked<K> {
    fn default() -> Self {
        Asked { keys: Default::default() }
    }
}

#[cfg(debug_assertions)]
impl<K: Clone + Eq + Hash + Debug> Asked<K> {
    pub fn add(&mut self, key: &K) {
        if !self.keys.contains(key) {
            self.keys.insert(key.clone());
        }
    }

    /// Panics if nobody asked for the key.
    #[track_caller]
    pub fn check<Q: Eq + Hash + Debug + ?Sized>(&self, name: &str, key: &Q)
    where
        K: Borrow<Q>,
    {
        debug_assert!(self.keys.contains(key), "{name} {key:?} is read, but no command of the batch asked for it");
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }
}

#[cfg(not(debug_assertions))]
impl<K> Asked<K> {
    pub fn add(&mut self, _: &K) {}

    pub fn check<Q: ?Sized>(&self, _: &str, _: &Q) {}

    pub fn clear(&mut self) {}
}

/// Rows under keys of their own, such as users by email. Only keys that were asked for may be read.
#[derive(Clone, Debug)]
pub struct Lookup<K, V> {
    found: HashMap<K, V>,
    asked: Asked<K>,
}

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        Lookup { found: HashMap::new(), asked: Asked::default() }
    }
}

impl<K: Clone + Eq + Hash + Debug, V> Lookup<K, V> {
    /// Notes keys whose rows are loaded, found or not.
    pub fn ask(&mut self, keys: impl IntoIterator<Item = K>) {
        if cfg!(debug_assertions) {
            keys.into_iter().for_each(|key| self.asked.add(&key));
        }
    }

    pub fn extend(&mut self, rows: impl IntoIterator<Item = (K, V)>) {
        rows.into_iter().for_each(|(key, value)| self.insert(key, value));
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.asked.add(&key);
        self.found.insert(key, value);
    }

    /// Returns the row under a key.
    ///
    /// # Panics
    /// In debug builds, if no command of the batch asked for the key.
    #[track_caller]
    pub fn get<Q: Eq + Hash + Debug + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.asked.check(type_name::<(K, V)>(), key);
        self.found.get(key)
    }

    /// Returns the row under a key, to be changed. Panics like [`Lookup::get`].
    #[track_caller]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.asked.check(type_name::<(K, V)>(), key);
        self.found.get_mut(key)
    }

    /// Takes the row under a key. Panics like [`Lookup::get`].
    #[track_caller]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.asked.check(type_name::<(K, V)>(), key);
        self.found.remove(key)
    }

    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.found.retain(keep);
    }

    pub fn into_found(self) -> HashMap<K, V> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_asked_for_may_be_missing() {
        let mut lookup = Lookup::<String, i64>::default();
        lookup.ask(["email".to_owned()]);
        assert_eq!(lookup.get("email"), None);
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "\"email\" is read, but no command of the batch asked for it"))]
    fn a_key_that_nobody_asked_for_panics_in_debug_builds() {
        assert_eq!(Lookup::<String, i64>::default().get("email"), None);
    }
}
