package ledger

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// longestWait is the longest wait for an event that the service allows, in seconds.
const longestWait = 30

// EventFeed iterates over the account's events after a cursor, oldest first. It waits for events that have not happened yet.
//
//	feed := client.Events(stored)
//	for feed.Next(ctx) {
//		process(feed.Event())
//		store(feed.Cursor())
//	}
//	return feed.Err()
type EventFeed struct {
	client *Client
	query  ListEventsQuery
	// since counts until there is a cursor.
	since time.Time
	// hasMore says whether the log goes on after the cursor, as far as it is known.
	hasMore bool

	events    []WebhookEnvelope
	sequences []int64
	// at is the position of the event within the page, from 1.
	at     int
	before string
	err    error
}

// Events returns the events after a cursor: "" for all events, and "latest" for those from now on. The types limit them.
func (c *Client) Events(after string, types ...WebhookEventType) *EventFeed {
	names := make([]string, len(types))
	for i, name := range types {
		names[i] = string(name)
	}
	query := ListEventsQuery{After: after, Types: strings.Join(names, ","), Limit: 100}
	return &EventFeed{client: c, query: query, hasMore: true}
}

// Since begins with the events recorded at or after a time, if the feed has no cursor yet. It returns the feed.
func (f *EventFeed) Since(since time.Time) *EventFeed {
	f.since = since
	return f
}

// Next moves to the next event, and waits for it as long as it takes. It returns false after an error, for example the
// context's. Another call then goes on where the feed is.
func (f *EventFeed) Next(ctx context.Context) bool {
	for f.err = nil; f.at >= len(f.events); {
		if _, f.err = f.NextPage(ctx); f.err != nil {
			return false
		}
	}
	f.at++
	return true
}

// NextPage requests the next events. If there is none yet, it waits up to 30 seconds for one, and returns an empty page if
// none comes. After an error, it requests the same events again. Use either NextPage or Next.
func (f *EventFeed) NextPage(ctx context.Context) (*EventPage, error) {
	f.query.Wait = longestWait
	if f.hasMore {
		f.query.Wait = 0
	}
	f.query.Since = f.since
	if f.query.After != "" {
		f.query.Since = time.Time{}
	}
	page, err := f.client.ListEvents(ctx, f.query)
	if err != nil {
		return nil, err
	}
	f.before, f.query.After, f.hasMore = f.query.After, page.Cursor, page.HasMore
	f.events, f.sequences, f.at = page.Events, page.Sequences, 0
	return page, nil
}

// Event returns the event that Next moved to.
func (f *EventFeed) Event() *WebhookEnvelope { return &f.events[f.at-1] }

// Sequence returns the place of that event in the order of all events, as the header X-Event-Sequence of a webhook says it. It
// is 0 if the service does not say it.
func (f *EventFeed) Sequence() int64 {
	if f.at < 1 || f.at > len(f.sequences) {
		return 0
	}
	return f.sequences[f.at-1]
}

// Cursor returns the cursor to store once the event is processed, and to begin with next time. Events within a page share the
// cursor before them, so an interruption may repeat some: deduplicate on EventID. After NextPage, it is the page's.
func (f *EventFeed) Cursor() string {
	if f.at > 0 && f.at < len(f.events) {
		return f.before
	}
	return f.query.After
}

// Err returns the error that ended the iteration, or nil.
func (f *EventFeed) Err() error { return f.err }

// Order reads the state of the order right after the event, which Data is for the event types "order.…".
func (e *WebhookEnvelope) Order() (*WebhookOrder, error) {
	var order WebhookOrder
	return &order, json.Unmarshal(e.Data, &order)
}
