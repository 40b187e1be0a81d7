package ledger

import (
	"context"
	"net/http"
	"strconv"
)

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	// Number of the page, from 1.
	Number int64
	// TotalPages is the number of pages.
	TotalPages int64
	// TotalCount is the number of items on all pages.
	TotalCount int64
}

// Pages iterates over the items of a list, from the query's page on. It requests each page when it is needed.
//
//	orders := client.ListOrders(ledger.ListOrdersQuery{})
//	for orders.Next(ctx) {
//		fmt.Println(orders.Item().ID)
//	}
//	if err := orders.Err(); err != nil { … }
type Pages[T any] struct {
	client  *Client
	field   string
	call    call
	options []CallOption

	page Page[T]
	// at is the position of the item within the page, from 1.
	at   int
	done bool
	err  error
}

func newPages[T any](client *Client, field string, call call, options []CallOption) *Pages[T] {
	return &Pages[T]{client: client, field: field, call: call, options: options}
}

// Next moves to the next item. It returns false after the last one, and after an error.
func (p *Pages[T]) Next(ctx context.Context) bool {
	for p.err == nil {
		if p.at < len(p.page.Items) {
			p.at++
			return true
		}
		if p.done {
			return false
		}
		page, err := p.Page(ctx)
		if err != nil {
			p.err = err
			return false
		}
		p.page, p.at = *page, 0
		p.done = page.Number >= page.TotalPages
		p.call.query.Set("page", strconv.FormatInt(page.Number+1, 10))
	}
	return false
}

// Item returns the item that Next moved to.
func (p *Pages[T]) Item() T { return p.page.Items[p.at-1] }

// TotalCount returns the number of items on all pages, after the first call of Next.
func (p *Pages[T]) TotalCount() int64 { return p.page.TotalCount }

// Err returns the error that ended the iteration, or nil.
func (p *Pages[T]) Err() error { return p.err }

// Page requests one page: that of the query before the first call of Next, and the next one afterwards.
func (p *Pages[T]) Page(ctx context.Context) (*Page[T], error) {
	response, body, err := p.client.send(ctx, p.call, p.options)
	if err != nil {
		return nil, err
	}
	items, err := decodeList[T](response, body, p.field)
	if err != nil {
		return nil, err
	}
	page := &Page[T]{Items: items, Number: 1, TotalPages: 1}
	readNumber(response.Header, "X-Page", &page.Number)
	readNumber(response.Header, "X-Total-Pages", &page.TotalPages)
	readNumber(response.Header, "X-Total-Count", &page.TotalCount)
	return page, nil
}

// readNumber reads a header, and keeps the number if there is none.
func readNumber(header http.Header, name string, into *int64) {
	if number, err := strconv.ParseInt(header.Get(name), 10, 64); err == nil {
		*into = number
	}
}
