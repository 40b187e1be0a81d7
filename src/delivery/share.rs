//! Who comes next when not everybody can: the account that has the fewest, and within it the
//! webhook that has the fewest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ledger_events::AccountId;

/// A webhook that wants some.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub account_id: AccountId,
    /// How many its account has already, over all its webhooks.
    pub account_has: usize,
    /// How many it has itself.
    pub has: usize,
    /// How many more it may get.
    pub room: usize,
    /// When it was served last: of equals, who waits longest comes first.
    pub served: u64,
    /// Whether it gives back soon what it gets.
    pub is_quick: bool,
}

/// Whose turn it is: of those that have the fewest, who was served longest ago.
type Turns<T> = BinaryHeap<Reverse<(usize, u64, T)>>;

/// Shares `free` out, one by one; returns how many each candidate gets. Those that are not quick
/// get no more than `free_for_slow` together, so that however many of them hang there is room for
/// the others.
pub fn share(candidates: &[Candidate], mut free: usize, mut free_for_slow: usize) -> Vec<usize> {
    let mut given = vec![0; candidates.len()];
    let mut accounts: HashMap<AccountId, Turns<usize>> = HashMap::new();
    let mut turns: Turns<AccountId> = BinaryHeap::new();
    for (index, candidate) in candidates.iter().enumerate().filter(|(_, c)| c.room > 0) {
        accounts.entry(candidate.account_id).or_default().push(Reverse((candidate.has, candidate.served, index)));
    }
    for (account, webhooks) in &accounts {
        if let Some(Reverse((_, _, first))) = webhooks.peek() {
            let longest = webhooks.iter().map(|Reverse((_, served, _))| *served).min().unwrap_or_default();
            turns.push(Reverse((candidates[*first].account_has, longest, *account)));
        }
    }
    while free > 0
        && let Some(Reverse((has, served, account))) = turns.pop()
    {
        let Some(webhooks) = accounts.get_mut(&account) else { continue };
        while let Some(Reverse((webhook_has, webhook_served, index))) = webhooks.pop() {
            let candidate = &candidates[index];
            if !candidate.is_quick {
                if free_for_slow == 0 {
                    continue;
                }
                free_for_slow -= 1;
            }
            given[index] += 1;
            free -= 1;
            if given[index] < candidate.room {
                webhooks.push(Reverse((webhook_has + 1, webhook_served, index)));
            }
            turns.push(Reverse((has + 1, served, account)));
            break;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(account_id: AccountId, account_has: usize, has: usize, room: usize) -> Candidate {
        Candidate { account_id, account_has, has, room, served: 0, is_quick: true }
    }

    #[test]
    fn the_account_with_the_fewest_comes_first() {
        // A flood of one account's webhooks beside a single delivery of another.
        let flood: Vec<_> = (0..50).map(|_| one(1, 500, 10, 64)).chain([one(2, 0, 0, 1)]).collect();
        let given = share(&flood, 1, usize::MAX);
        assert_eq!((given[50], given.iter().sum::<usize>()), (1, 1));
        assert_eq!(share(&[one(1, 0, 0, 64), one(2, 0, 0, 64), one(3, 4, 4, 64)], 8, usize::MAX), [4, 4, 0]);
    }

    #[test]
    fn within_an_account_webhooks_are_equal() {
        assert_eq!(share(&[one(1, 6, 6, 64), one(1, 6, 0, 64), one(1, 6, 0, 2)], 8, usize::MAX), [0, 6, 2]);
    }

    #[test]
    fn of_equals_who_waits_longest_comes_first() {
        let waits = |account_id, served| Candidate { served, ..one(account_id, 0, 0, 64) };
        assert_eq!(share(&[waits(1, 7), waits(2, 3), waits(3, 5)], 2, usize::MAX), [0, 1, 1]);
    }

    #[test]
    fn the_slow_leave_room_for_the_quick() {
        let slow = |account_id| Candidate { is_quick: false, ..one(account_id, 0, 0, 64) };
        let mut all: Vec<_> = (0..1_000).map(slow).collect();
        all.push(one(5_000, 900, 900, 64));
        let given = share(&all, 100, 30);
        assert_eq!((given[..1_000].iter().sum::<usize>(), given[1_000]), (30, 64));
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_may_be_and_nothing_is_left_that_somebody_could_have(
            wants in prop::collection::vec((0i64..5, 0usize..9, 0usize..9, any::<bool>(), 0u64..9), 0..40),
            free in 0usize..100,
            free_for_slow in 0usize..50,
        ) {
            let has = |account| wants.iter().filter(|w| w.0 == account).map(|w| w.1).sum();
            let candidates: Vec<Candidate> = wants
                .iter()
                .map(|&(account_id, has_itself, room, is_quick, served)| Candidate {
                    account_id, account_has: has(account_id), has: has_itself, room, served, is_quick,
                })
                .collect();
            let given = share(&candidates, free, free_for_slow);
            let sum = |quick: bool| candidates.iter().zip(&given).filter(|(c, _)| c.is_quick == quick).map(|(_, g)| g).sum::<usize>();
            let room = |quick: bool| candidates.iter().filter(|c| c.is_quick == quick).map(|c| c.room).sum::<usize>();
            prop_assert!(candidates.iter().zip(&given).all(|(c, g)| *g <= c.room));
            prop_assert!(sum(true) + sum(false) <= free && sum(false) <= free_for_slow);
            prop_assert!(sum(true) + sum(false) == free.min(room(true) + room(false).min(free_for_slow)));
        }
    }
}
