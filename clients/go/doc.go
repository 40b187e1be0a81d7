// Package ledger is a client of the rewards-ledger API: orders, wallets, events, and webhooks that it verifies.
//
// It signs requests, sends an idempotency key with every POST that accepts one, repeats requests when that is safe, and
// iterates over pages and events. It uses the standard library only.
package ledger
