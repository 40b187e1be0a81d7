//! Who comes next when not everybody can: the account that has the fewest, and within it the
//! webhook that has the fewest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ledger_events::AccountId;

/// An account may get more as long as it has less than so many times what is free. So one alone may have three
/// quarters of all, several together more, and however they keep it there is something left for who has none.
const OF_WHAT_IS_FREE: usize = 3;

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
    pub pace: Pace,
}

/// How soon a webhook gives back what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Quick,
    /// It takes its time, or has not shown yet how long.
    Unproven,
    /// It gives no answer.
    Silent,
}

/// How much there is to be shared out, one by one.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    pub all: usize,
    /// Of that, for those that are not known to be quick.
    pub unproven: usize,
    /// Of that, for those that are silent: they take turns.
    pub silent: usize,
}

/// Whose turn it is: of those that have the fewest, who was served longest ago.
type Turns<T> = BinaryHeap<Reverse<(usize, u64, T)>>;

/// Shares `free` out; returns how many each candidate gets. So however many hang, there is room for those
/// that are quick; and those that are silent leave room for those that answer, be it late.
pub fn share(candidates: &[Candidate], mut free: Free) -> Vec<usize> {
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
    // Who comes next has the fewest: if it may not get more, nobody may.
    while let Some(Reverse((has, served, account))) = turns.pop()
        && has < free.all.saturating_mul(OF_WHAT_IS_FREE)
    {
        let Some(webhooks) = accounts.get_mut(&account) else { continue };
        while let Some(Reverse((webhook_has, webhook_served, index))) = webhooks.pop() {
            let candidate = &candidates[index];
            if candidate.pace != Pace::Quick && free.unproven == 0 {
                continue;
            }
            if candidate.pace == Pace::Silent {
                if free.silent == 0 {
                    continue;
                }
                free.silent -= 1;
            }
            if candidate.pace != Pace::Quick {
                free.unproven -= 1;
            }
            given[index] += 1;
            free.all -= 1;
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
        Candidate { account_id, account_has, has, room, served: 0, pace: Pace::Quick }
    }

    fn free(all: usize) -> Free {
        Free { all, unproven: usize::MAX, silent: usize::MAX }
    }

    #[test]
    fn the_account_with_the_fewest_comes_first() {
        // A flood of one account's webhooks beside a single delivery of another.
        let flood: Vec<_> = (0..50).map(|_| one(1, 500, 10, 64)).chain([one(2, 0, 0, 1)]).collect();
        let given = share(&flood, free(1));
        assert_eq!((given[50], given.iter().sum::<usize>()), (1, 1));
        assert_eq!(share(&[one(1, 0, 0, 64), one(2, 0, 0, 64), one(3, 4, 4, 64)], free(9)), [4, 4, 0]);
    }

    #[test]
    fn whoever_has_much_leaves_some_for_who_has_none() {
        let all_of_one: Vec<_> = (0..20).map(|_| one(1, 0, 0, 64)).collect();
        assert_eq!(share(&all_of_one, free(256)).iter().sum::<usize>(), 192);
        // It keeps them; then others come, one after the other.
        assert_eq!(share(&[one(1, 192, 64, 64), one(2, 0, 0, 64)], free(64)), [0, 48]);
        assert_eq!(share(&[one(1, 192, 64, 64), one(2, 48, 48, 64), one(3, 0, 0, 64)], free(16)), [0, 0, 12]);
        // Together they may have all.
        let of_many: Vec<_> = (0..200).map(|account_id| one(account_id, 0, 0, 64)).collect();
        assert_eq!(share(&of_many, free(256)).iter().sum::<usize>(), 256);
    }

    #[test]
    fn within_an_account_webhooks_are_equal() {
        assert_eq!(share(&[one(1, 6, 6, 64), one(1, 6, 0, 64), one(1, 6, 0, 2)], free(12)), [0, 6, 2]);
    }

    #[test]
    fn of_equals_who_waits_longest_comes_first() {
        let waits = |account_id, served| Candidate { served, ..one(account_id, 0, 0, 64) };
        assert_eq!(share(&[waits(1, 7), waits(2, 3), waits(3, 5)], free(2)), [0, 1, 1]);
    }

    #[test]
    fn the_silent_leave_room_for_the_quick() {
        let silent = |account_id| Candidate { pace: Pace::Silent, ..one(account_id, 0, 0, 64) };
        let mut all: Vec<_> = (0..1_000).map(silent).collect();
        all.push(one(5_000, 900, 900, 64));
        let given = share(&all, Free { all: 1_000, unproven: 30, silent: 10 });
        assert_eq!((given[..1_000].iter().sum::<usize>(), given[1_000]), (10, 64));
    }

    #[test]
    fn the_silent_leave_room_for_the_unproven() {
        let paced = |pace, account_id| Candidate { pace, ..one(account_id, 0, 0, 64) };
        let all = [paced(Pace::Silent, 1), paced(Pace::Silent, 2), paced(Pace::Unproven, 3)];
        assert_eq!(share(&all, Free { all: 100, unproven: 50, silent: 10 }), [5, 5, 40]);
        assert_eq!(share(&all, Free { all: 100, unproven: 50, silent: 0 }), [0, 0, 50]);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_may_be_and_nothing_is_left_that_somebody_could_have(
            wants in prop::collection::vec(
                (0i64..5, 0usize..9, 0usize..9, prop::sample::select(vec![Pace::Quick, Pace::Unproven, Pace::Silent]), 0u64..9), 0..40),
            all in 0usize..100,
            unproven in 0usize..50,
            silent in 0usize..25,
        ) {
            let has = |account| wants.iter().filter(|w| w.0 == account).map(|w| w.1).sum();
            let candidates: Vec<Candidate> = wants
                .iter()
                .map(|&(account_id, has_itself, room, pace, served)| Candidate {
                    account_id, account_has: has(account_id), has: has_itself, room, served, pace,
                })
                .collect();
            let given = share(&candidates, Free { all, unproven, silent });
            let of = |pace: Pace| candidates.iter().zip(&given).filter(move |(c, _)| c.pace == pace);
            let sum = |pace| of(pace).map(|(_, given)| given).sum::<usize>();
            let (total, not_quick) = (given.iter().sum::<usize>(), sum(Pace::Unproven) + sum(Pace::Silent));
            prop_assert!(candidates.iter().zip(&given).all(|(c, g)| *g <= c.room));
            prop_assert!(total <= all && not_quick <= unproven);
            prop_assert!(sum(Pace::Silent) <= silent);
            // Who gets less than it could has much of what there is.
            let has_much = |c: &Candidate| {
                let of_account = candidates.iter().zip(&given).filter(|(other, _)| other.account_id == c.account_id);
                c.account_has + of_account.map(|(_, given)| given).sum::<usize>() >= (all - total) * OF_WHAT_IS_FREE
            };
            prop_assert!(of(Pace::Quick).all(|(c, given)| *given == c.room || has_much(c)));
            if not_quick < unproven {
                prop_assert!(of(Pace::Unproven).all(|(c, given)| *given == c.room || has_much(c)));
                prop_assert!(of(Pace::Silent).all(|(c, given)| *given == c.room || has_much(c) || sum(Pace::Silent) >= silent));
            }
        }
    }
}
