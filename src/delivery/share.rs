//! Fair sharing of limited capacity: the account with the fewest deliveries comes first, and within it the webhook with the
//! fewest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ledger_events::AccountId;

/// Factor that limits an account: it gets more only while it has less than this many times the free capacity.
///
/// So a single account can take three quarters of all, several together more. However long they hold it, some capacity is
/// left for an account that has none.
const OF_WHAT_IS_FREE: usize = 3;

/// Webhook that competes for capacity.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub account_id: AccountId,
    /// Number of deliveries that its account has already, over all webhooks.
    pub account_has: usize,
    /// Number of deliveries that the webhook has already.
    pub has: usize,
    /// Number of deliveries that it may still get.
    pub room: usize,
    /// Turn in which it was served last. Among equals, the one that has waited longest comes first.
    pub served: u64,
    pub responsiveness: Responsiveness,
}

/// Responsiveness of a webhook: how soon it frees the capacity that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responsiveness {
    /// The webhook answers within a second.
    Fast,
    /// The webhook answers late, or nothing is known of it yet.
    Unknown,
    /// The webhook does not answer.
    Unresponsive,
}

/// Free capacity, in deliveries.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// Capacity for all webhooks.
    pub all: usize,
    /// Share of it for webhooks that are not known to be fast.
    pub not_fast: usize,
    /// Share of it for unresponsive webhooks, which take turns.
    pub unresponsive: usize,
}

/// Priority queue: fewest deliveries first, then the one served longest ago.
type Turns<T> = BinaryHeap<Reverse<(usize, u64, T)>>;

/// Distributes the free capacity, and returns the number of deliveries for each candidate.
///
/// However many webhooks hang, capacity is left for fast ones. Unresponsive webhooks leave capacity for those that answer
/// late.
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
    // The next account has the fewest: if it may not get more, no account may.
    while let Some(Reverse((has, served, account))) = turns.pop()
        && has < free.all.saturating_mul(OF_WHAT_IS_FREE)
    {
        let Some(webhooks) = accounts.get_mut(&account) else { continue };
        while let Some(Reverse((webhook_has, webhook_served, index))) = webhooks.pop() {
            let candidate = &candidates[index];
            if candidate.responsiveness != Responsiveness::Fast && free.not_fast == 0 {
                continue;
            }
            if candidate.responsiveness == Responsiveness::Unresponsive {
                if free.unresponsive == 0 {
                    continue;
                }
                free.unresponsive -= 1;
            }
            if candidate.responsiveness != Responsiveness::Fast {
                free.not_fast -= 1;
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

    fn one(account: i64, account_has: usize, has: usize, room: usize) -> Candidate {
        Candidate { account_id: AccountId(account), account_has, has, room, served: 0, responsiveness: Responsiveness::Fast }
    }

    fn free(all: usize) -> Free {
        Free { all, not_fast: usize::MAX, unresponsive: usize::MAX }
    }

    #[test]
    fn the_account_with_the_fewest_comes_first() {
        // A flood of one account's webhooks competes with a single delivery of another account.
        let flood: Vec<_> = (0..50).map(|_| one(1, 500, 10, 64)).chain([one(2, 0, 0, 1)]).collect();
        let given = share(&flood, free(1));
        assert_eq!((given[50], given.iter().sum::<usize>()), (1, 1));
        assert_eq!(share(&[one(1, 0, 0, 64), one(2, 0, 0, 64), one(3, 4, 4, 64)], free(9)), [4, 4, 0]);
    }

    #[test]
    fn a_busy_account_leaves_capacity_for_one_that_has_none() {
        let all_of_one: Vec<_> = (0..20).map(|_| one(1, 0, 0, 64)).collect();
        assert_eq!(share(&all_of_one, free(256)).iter().sum::<usize>(), 192);
        // The first account keeps its share; then others arrive, one after the other.
        assert_eq!(share(&[one(1, 192, 64, 64), one(2, 0, 0, 64)], free(64)), [0, 48]);
        assert_eq!(share(&[one(1, 192, 64, 64), one(2, 48, 48, 64), one(3, 0, 0, 64)], free(16)), [0, 0, 12]);
        // Many accounts together may take all of it.
        let of_many: Vec<_> = (0..200).map(|account_id| one(account_id, 0, 0, 64)).collect();
        assert_eq!(share(&of_many, free(256)).iter().sum::<usize>(), 256);
    }

    #[test]
    fn webhooks_of_an_account_share_equally() {
        assert_eq!(share(&[one(1, 6, 6, 64), one(1, 6, 0, 64), one(1, 6, 0, 2)], free(12)), [0, 6, 2]);
    }

    #[test]
    fn among_equals_the_longest_waiting_comes_first() {
        let waits = |account_id, served| Candidate { served, ..one(account_id, 0, 0, 64) };
        assert_eq!(share(&[waits(1, 7), waits(2, 3), waits(3, 5)], free(2)), [0, 1, 1]);
    }

    #[test]
    fn unresponsive_webhooks_leave_capacity_for_fast_ones() {
        let unresponsive = |account_id| Candidate { responsiveness: Responsiveness::Unresponsive, ..one(account_id, 0, 0, 64) };
        let mut all: Vec<_> = (0..1_000).map(unresponsive).collect();
        all.push(one(5_000, 900, 900, 64));
        let given = share(&all, Free { all: 1_000, not_fast: 30, unresponsive: 10 });
        assert_eq!((given[..1_000].iter().sum::<usize>(), given[1_000]), (10, 64));
    }

    #[test]
    fn unresponsive_webhooks_leave_capacity_for_unknown_ones() {
        let paced = |responsiveness, account_id| Candidate { responsiveness, ..one(account_id, 0, 0, 64) };
        let all =
            [paced(Responsiveness::Unresponsive, 1), paced(Responsiveness::Unresponsive, 2), paced(Responsiveness::Unknown, 3)];
        assert_eq!(share(&all, Free { all: 100, not_fast: 50, unresponsive: 10 }), [5, 5, 40]);
        assert_eq!(share(&all, Free { all: 100, not_fast: 50, unresponsive: 0 }), [0, 0, 50]);
    }

    proptest! {
        #[test]
        fn limits_hold_and_no_usable_capacity_is_left_over(
            wants in prop::collection::vec(
                (0i64..5, 0usize..9, 0usize..9, prop::sample::select(vec![Responsiveness::Fast, Responsiveness::Unknown, Responsiveness::Unresponsive]), 0u64..9), 0..40),
            all in 0usize..100,
            not_fast in 0usize..50,
            unresponsive in 0usize..25,
        ) {
            let has = |account| wants.iter().filter(|w| w.0 == account).map(|w| w.1).sum();
            let candidates: Vec<Candidate> = wants
                .iter()
                .map(|&(account, has_itself, room, responsiveness, served)| Candidate {
                    account_id: AccountId(account), account_has: has(account), has: has_itself, room, served, responsiveness,
                })
                .collect();
            let given = share(&candidates, Free { all, not_fast, unresponsive });
            let of = |responsiveness: Responsiveness| candidates.iter().zip(&given).filter(move |(c, _)| c.responsiveness == responsiveness);
            let sum = |responsiveness| of(responsiveness).map(|(_, given)| given).sum::<usize>();
            let (total, given_not_fast) = (given.iter().sum::<usize>(), sum(Responsiveness::Unknown) + sum(Responsiveness::Unresponsive));
            prop_assert!(candidates.iter().zip(&given).all(|(c, g)| *g <= c.room));
            prop_assert!(total <= all && given_not_fast <= not_fast);
            prop_assert!(sum(Responsiveness::Unresponsive) <= unresponsive);
            // A candidate that gets less than its room belongs to an account that has reached its limit.
            let has_much = |c: &Candidate| {
                let of_account = candidates.iter().zip(&given).filter(|(other, _)| other.account_id == c.account_id);
                c.account_has + of_account.map(|(_, given)| given).sum::<usize>() >= (all - total) * OF_WHAT_IS_FREE
            };
            prop_assert!(of(Responsiveness::Fast).all(|(c, given)| *given == c.room || has_much(c)));
            if given_not_fast < not_fast {
                prop_assert!(of(Responsiveness::Unknown).all(|(c, given)| *given == c.room || has_much(c)));
                prop_assert!(of(Responsiveness::Unresponsive).all(|(c, given)| *given == c.room || has_much(c) || sum(Responsiveness::Unresponsive) >= unresponsive));
            }
        }
    }
}
