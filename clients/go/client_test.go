package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// quick makes the attempts of the default policy without its pauses.
var quick = WithRetryPolicy(RetryPolicy{Attempts: 5, FirstPause: time.Microsecond, LongestPause: time.Second})

const orderJSON = `{"success": true, "data": {"id": 42, "status": "HALF_EATEN", "amount": "48.75", "cancel_reason": null,
	"metadata": {"basket": 9}, "created_at": "2026-01-31T12:00:00.000Z", "later": "unknown fields are ignored"}}`

// seen is a request that the server of a test received.
type seen struct {
	Method, Target, Body string
	Header               http.Header
}

// answer is what it does with one request.
type answer func(w http.ResponseWriter)

func reply(status int, body string, header ...string) answer {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func refuse(status int, code string, header ...string) answer {
	body := fmt.Sprintf(`{"error": {"name": "SomeError", "code": %q, "message": "No."}}`, code)
	return reply(status, body, append(header, "X-Request-ID", "req-1")...)
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) { panic(http.ErrAbortHandler) }

// serve answers requests with the answers in turn, and returns a client and what the server has seen.
func serve(t *testing.T, credentials Credentials, answers ...answer) (*Client, func() []seen) {
	t.Helper()
	requests := make(chan seen, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		number := len(requests)
		requests <- seen{r.Method, r.URL.String(), string(body), r.Header}
		if number >= len(answers) {
			t.Errorf("request %d is one too many", number+1)
			return
		}
		answers[number](w)
	}))
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	client, err := New(server.URL+"/", credentials, quick)
	if err != nil {
		t.Fatal(err)
	}
	return client, func() []seen {
		all := make([]seen, len(requests))
		for i := range all {
			all[i] = <-requests
		}
		return all
	}
}

func placed() PlaceOrder { return PlaceOrder{ProductID: 1, Denomination: "25.10", Quantity: 2} }

func TestACallSendsWhatTheDocumentSaysAndReadsTheData(t *testing.T) {
	client, requests := serve(t, APIKeyCredentials("key", "secret"), reply(201, orderJSON, "X-Request-ID", "req-7", "Idempotent-Replayed", "true"))
	body := placed()
	body.Metadata = map[string]any{"basket": 9}
	var response Response
	order, err := client.PlaceOrder(context.Background(), body, WithResponse(&response), WithHeader("X-Request-ID", "mine"))
	if err != nil {
		t.Fatal(err)
	}
	if order.ID != 42 || order.Amount != "48.75" || order.Status != "HALF_EATEN" || order.CancelReason != nil || order.CreatedAt.Year() != 2026 {
		t.Errorf("order %+v", order)
	}
	if response.Status != 201 || response.RequestID != "req-7" || !response.IsReplayed {
		t.Errorf("response %+v", response)
	}
	request := requests()[0]
	if request.Method != "POST" || request.Target != "/api/v1/orders" {
		t.Errorf("%s %s", request.Method, request.Target)
	}
	if want := `{"product_id":1,"denomination":25.10,"quantity":2,"metadata":{"basket":9}}`; request.Body != want {
		t.Errorf("body %s, want %s", request.Body, want)
	}
	for name, value := range map[string]string{"X-Api-Key": "key", "X-Api-Secret": "secret", "X-Request-Id": "mine", "Content-Type": "application/json"} {
		if request.Header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, request.Header.Get(name), value)
		}
	}
	if request.Header.Get("X-Signature") != "" {
		t.Error("the request is signed without a signing secret")
	}
}

func TestEachAttemptIsSignedAndAllShareTheIdempotencyKey(t *testing.T) {
	client, requests := serve(t, SignedCredentials("key", "secret", "signing"),
		refuse(503, "E_UNAVAILABLE", "Retry-After", "0"), hangUp, refuse(504, "E_OUTCOME_UNKNOWN"),
		refuse(409, "E_IDEMPOTENCY_IN_PROGRESS"), reply(201, orderJSON))
	if _, err := client.PlaceOrder(context.Background(), placed()); err != nil {
		t.Fatal(err)
	}
	all := requests()
	if len(all) != 5 {
		t.Fatalf("%d requests", len(all))
	}
	key := all[0].Header.Get(idempotencyKeyHeader)
	if len(key) != 36 {
		t.Errorf("the key %q is no UUID", key)
	}
	for _, request := range all {
		if request.Header.Get(idempotencyKeyHeader) != key {
			t.Error("the attempts have different keys")
		}
		var timestamp int64
		signature := request.Header.Get("X-Signature")
		if _, err := fmt.Sscanf(signature, "t=%d,", &timestamp); err != nil {
			t.Fatal(err)
		}
		if want := XSignature("signing", "POST", "/api/v1/orders", "", []byte(request.Body), timestamp); signature != want {
			t.Errorf("signature %s, want %s", signature, want)
		}
	}
}

func TestTheQueryIsSignedAsItIsSent(t *testing.T) {
	empty := reply(200, `{"data": {"orders": []}}`)
	client, requests := serve(t, SignedCredentials("key", "secret", "signing"), empty)
	query := ListOrdersQuery{ClientReference: "a b&c=é/", Status: OrderStatusPending, CreatedFrom: time.Unix(0, 5_000_000)}
	if _, err := client.ListOrders(query).Page(context.Background()); err != nil {
		t.Fatal(err)
	}
	request := requests()[0]
	path, sent, _ := strings.Cut(request.Target, "?")
	if want := "client_reference=a+b%26c%3D%C3%A9%2F&created_from=1970-01-01T00%3A00%3A00.005Z&status=PENDING"; sent != want {
		t.Errorf("query %s, want %s", sent, want)
	}
	var timestamp int64
	signature := request.Header.Get("X-Signature")
	if _, err := fmt.Sscanf(signature, "t=%d,", &timestamp); err != nil {
		t.Fatal(err)
	}
	if want := XSignature("signing", "GET", path, sent, nil, timestamp); signature != want {
		t.Errorf("signature %s, want %s", signature, want)
	}
}

func TestAGivenKeyIsSentAndCallsHaveDifferentKeysOtherwise(t *testing.T) {
	client, requests := serve(t, Credentials{}, reply(200, orderJSON), reply(200, orderJSON), reply(200, orderJSON), reply(200, orderJSON))
	ctx := context.Background()
	for _, options := range [][]CallOption{{WithIdempotencyKey("basket-9")}, nil, nil} {
		if _, err := client.CancelOrder(ctx, 42, nil, options...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.GetOrder(ctx, 42); err != nil {
		t.Fatal(err)
	}
	all := requests()
	keys := []string{}
	for _, request := range all {
		keys = append(keys, request.Header.Get(idempotencyKeyHeader))
	}
	if keys[0] != "basket-9" || keys[1] == keys[2] || keys[1] == "" || keys[3] != "" {
		t.Errorf("keys %q", keys)
	}
	if all[0].Target != "/api/v1/orders/42/cancel" || all[0].Body != "" || all[0].Header.Get("X-Api-Key") != "" {
		t.Errorf("%+v", all[0])
	}
}

func TestACallWithoutAKeyIsNotRepeatedWhenItMayHaveHappened(t *testing.T) {
	ctx := context.Background()
	login := Login{Email: "a@example.com", Password: "hunter2 hunter2"}
	client, _ := serve(t, Credentials{}, hangUp)
	var connection *ConnectionError
	if _, err := client.LogIn(ctx, login); !errors.As(err, &connection) {
		t.Errorf("%v", err)
	}
	client, _ = serve(t, Credentials{}, refuse(504, "E_OUTCOME_UNKNOWN"))
	if _, err := client.LogIn(ctx, login); !errors.Is(err, ErrorCodeOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	// After a 503, nothing has happened.
	client, _ = serve(t, Credentials{}, refuse(503, "E_UNAVAILABLE"), reply(200, `{"data": {"access_token": "jwt"}}`))
	tokens, err := client.LogIn(ctx, login)
	if err != nil || tokens.AccessToken.Expose() != "jwt" {
		t.Errorf("%v %v", tokens, err)
	}
}

func TestAttemptsEndWithTheLastRefusal(t *testing.T) {
	busy := refuse(503, "E_UNAVAILABLE")
	client, requests := serve(t, Credentials{}, busy, busy, busy, busy, busy)
	_, err := client.GetOrder(context.Background(), 1)
	if !errors.Is(err, ErrorCodeUnavailable) || len(requests()) != 5 {
		t.Errorf("%v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := New("http://"+address, Credentials{}, quick)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.LogIn(context.Background(), Login{})
	var connection *ConnectionError
	if !errors.As(err, &connection) || !connection.isUnsent() || !strings.HasPrefix(err.Error(), "no response from http://"+address+": ") {
		t.Errorf("%v", err)
	}
}

func TestAnAttemptWithoutAResponseTimesOut(t *testing.T) {
	attempts := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts <- struct{}{}
		<-r.Context().Done() // until the client hangs up
	}))
	defer server.Close()
	policy := RetryPolicy{Attempts: 2, FirstPause: time.Microsecond}
	client, err := New(server.URL, Credentials{}, WithRetryPolicy(policy), WithTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.GetOrder(context.Background(), 1)
	var connection *ConnectionError
	if !errors.As(err, &connection) || !errors.Is(err, context.DeadlineExceeded) || len(attempts) != 2 {
		t.Errorf("%d attempts, %v", len(attempts), err)
	}
}

func TestTheContextEndsThePauses(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client, requests := serve(t, Credentials{}, func(w http.ResponseWriter) {
		reply(503, "", "Retry-After", "1")(w)
		cancel()
	})
	if _, err := client.GetOrder(ctx, 1); err == nil {
		t.Error("no error")
	}
	if len(requests()) != 1 {
		t.Error("the request was repeated")
	}
}

func TestRefusalsAreTypedByTheirCode(t *testing.T) {
	fields := `{"error": {"name": "ValidationError", "code": "E_VALIDATION_FAILURE", "message": "Invalid.",
		"messages": {"quantity": ["must be at least 1"], "product_id": ["is missing"]}}}`
	limited := `{"error":"rate_limit_exceeded","message":"Too many requests.","retry_after":3600}`
	client, _ := serve(t, Credentials{}, reply(400, fields, "X-Request-ID", "req-9"), reply(429, limited, "Retry-After", "3600"),
		reply(500, "<html>Broken</html>"), refuse(402, "E_INSUFFICIENT_BALANCE"), refuse(418, "E_TEAPOT"))
	refusal := func() *Error {
		t.Helper()
		_, err := client.PlaceOrder(context.Background(), placed())
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		return refusal
	}
	invalid := refusal()
	if want := "400 E_VALIDATION_FAILURE: Invalid.; product_id: is missing; quantity: must be at least 1 (request req-9)"; invalid.Error() != want {
		t.Errorf("%s, want %s", invalid, want)
	}
	if limit := refusal(); !errors.Is(limit, ErrorCodeRateLimitExceeded) || limit.RetryAfter != time.Hour || limit.Message != "Too many requests." {
		t.Errorf("%+v", limit)
	}
	if proxy := refusal(); proxy.Status != 500 || proxy.Code != "" || proxy.Message != "Internal Server Error" {
		t.Errorf("%+v", proxy)
	}
	if low := refusal(); !errors.Is(low, ErrorCodeInsufficientBalance) || errors.Is(low, ErrorCodeForbidden) {
		t.Errorf("%+v", low)
	}
	if unknown := refusal(); unknown.Code != "E_TEAPOT" || unknown.RequestID != "req-1" {
		t.Errorf("%+v", unknown)
	}
}

func TestPausesFollowThePolicy(t *testing.T) {
	policy := RetryPolicy{Attempts: 4, FirstPause: time.Second, LongestPause: 3 * time.Second}
	busy := &Error{Status: 503}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		if pause, more := policy.pause(i+1, busy, false, 0); !more || pause != want {
			t.Errorf("attempt %d: %v, want %v", i+1, pause, want)
		}
	}
	if _, more := policy.pause(4, busy, false, 0); more {
		t.Error("a fifth attempt")
	}
	if pause, _ := policy.pause(2, busy, false, 1); pause != time.Second {
		t.Errorf("jitter takes off up to half: %v", pause)
	}
	limited := &Error{Status: 429, RetryAfter: 3 * time.Second}
	for random, want := range map[float64]time.Duration{0: 3 * time.Second, 0.5: 3500 * time.Millisecond} {
		if pause, more := policy.pause(1, limited, false, random); !more || pause != want {
			t.Errorf("asked for 3 s: %v, want %v", pause, want)
		}
	}
	if _, more := policy.pause(1, &Error{Status: 429, RetryAfter: 4 * time.Second}, false, 0); more {
		t.Error("the pause is longer than the longest")
	}
	for _, status := range []int{400, 401, 402, 403, 404, 409, 422, 500} {
		if _, more := policy.pause(1, &Error{Status: status}, true, 0); more {
			t.Errorf("%d is repeated", status)
		}
	}
	for _, status := range []int{502, 504} {
		for _, isRepeatable := range []bool{false, true} {
			if _, more := policy.pause(1, &Error{Status: status}, isRepeatable, 0); more != isRepeatable {
				t.Errorf("%d: repeated is %v", status, more)
			}
		}
	}
}

func TestListsAndBytes(t *testing.T) {
	client, requests := serve(t, Credentials{},
		reply(200, `{"success": true, "data": {"categories": [{"id": 1, "name": "Food"}], "later": {}}}`),
		reply(200, "\x89PNG\r\n", "Content-Type", "image/png"),
		reply(201, `{"id": 7, "token": "t0ken", "url": "https://example.com"}`))
	ctx := context.Background()
	categories, err := client.ListCategories(ctx)
	if err != nil || len(categories) != 1 || categories[0].Name != "Food" {
		t.Errorf("%v %v", categories, err)
	}
	image, err := client.GetProductImageBytes(ctx, 1, "a/b c", GetProductImageBytesQuery{})
	if err != nil || string(image) != "\x89PNG\r\n" {
		t.Errorf("%q %v", image, err)
	}
	webhook, err := client.RegisterWebhook(ctx, RegisterWebhook{Name: "w", URL: "https://example.com"})
	if err != nil || webhook.ID != 7 || webhook.Token.Expose() != "t0ken" {
		t.Errorf("%v %v", webhook, err)
	}
	if target := requests()[1].Target; target != "/api/v1/products/1/image/a%2Fb%20c" {
		t.Error(target)
	}
}

func TestPagesAreReadAsTheyAreNeeded(t *testing.T) {
	page := func(number int, ids string) answer {
		return reply(200, fmt.Sprintf(`{"data": {"orders": [%s]}}`, ids), "X-Page", fmt.Sprint(number), "X-Total-Pages", "2", "X-Total-Count", "3")
	}
	client, requests := serve(t, Credentials{}, page(1, `{"id": 3}, {"id": 2}`), refuse(503, "E_UNAVAILABLE"), page(2, `{"id": 1}`))
	ctx := context.Background()
	orders := client.ListOrders(ListOrdersQuery{Limit: 2})
	ids := []int64{}
	for orders.Next(ctx) {
		ids = append(ids, orders.Item().ID)
	}
	if orders.Err() != nil || fmt.Sprint(ids) != "[3 2 1]" || orders.TotalCount() != 3 || orders.Next(ctx) {
		t.Errorf("%v %v", ids, orders.Err())
	}
	targets := []string{}
	for _, request := range requests() {
		targets = append(targets, request.Target)
	}
	if want := "[/api/v1/orders?limit=2 /api/v1/orders?limit=2&page=2 /api/v1/orders?limit=2&page=2]"; fmt.Sprint(targets) != want {
		t.Errorf("%v", targets)
	}

	client, _ = serve(t, Credentials{}, refuse(403, "E_FORBIDDEN"))
	orders = client.ListOrders(ListOrdersQuery{})
	if orders.Next(ctx) || !errors.Is(orders.Err(), ErrorCodeForbidden) {
		t.Error(orders.Err())
	}
}

func TestTheFeedContinuesFromItsCursorAndWaits(t *testing.T) {
	page := func(cursor string, hasMore bool, events ...string) answer {
		envelopes, sequences := make([]string, len(events)), make([]string, len(events))
		for i, id := range events {
			envelopes[i] = fmt.Sprintf(`{"event_id": %q, "event_type": "order.created", "created_at": "2026-01-31T12:00:00.000Z", "data": {"id": 42,  "status": "PENDING"}}`, id)
			sequences[i] = fmt.Sprint(7 * (i + 1))
		}
		return reply(200, fmt.Sprintf(`{"data": {"events": [%s], "sequences": [%s], "cursor": %q, "has_more": %v}}`,
			strings.Join(envelopes, ","), strings.Join(sequences, ","), cursor, hasMore))
	}
	client, requests := serve(t, Credentials{}, page("c1", true, "e1", "e2"), page("c2", false), page("c2", false),
		refuse(403, "E_FORBIDDEN"), page("c3", false, "e3"))
	ctx := context.Background()
	since := time.Date(2026, 1, 31, 13, 0, 0, 0, time.FixedZone("", 3600))
	feed := client.Events("", WebhookEventTypeOrderCreated, WebhookEventTypeOrderCancelled).Since(since)
	steps := []string{}
	for feed.Next(ctx) {
		steps = append(steps, fmt.Sprint(feed.Sequence(), " ", feed.Event().EventID, " ", feed.Cursor()))
	}
	if fmt.Sprintf("%q", steps) != `["7 e1 " "14 e2 c1"]` || !errors.Is(feed.Err(), ErrorCodeForbidden) {
		t.Errorf("%q %v", steps, feed.Err())
	}
	// After the error, the feed goes on where it is.
	if !feed.Next(ctx) || feed.Event().EventID != "e3" || feed.Cursor() != "c3" || feed.Err() != nil {
		t.Errorf("%v", feed.Err())
	}
	order, err := feed.Event().Order()
	if err != nil || order.ID != 42 || order.Status != OrderStatusPending {
		t.Errorf("%v %v", order, err)
	}
	if string(feed.Event().Data) != `{"id": 42,  "status": "PENDING"}` {
		t.Errorf("the data are not as sent: %s", feed.Event().Data)
	}
	types := "types=order.created%2Corder.cancelled"
	want := []string{"limit=100&since=2026-01-31T12%3A00%3A00Z&" + types, "after=c1&limit=100&" + types, "after=c2&limit=100&" + types + "&wait=30"}
	want = append(want, want[2], want[2])
	for i, request := range requests() {
		if request.Target != "/api/v1/events?"+want[i] {
			t.Errorf("%s, want %s", request.Target, want[i])
		}
	}
}

func TestNoVerbShowsASecret(t *testing.T) {
	const secret = "s3cr3t"
	credentials := SignedCredentials("key", secret, secret)
	client, err := New("https://example.com", credentials)
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		client      Client
		credentials Credentials
		verifier    WebhookVerifier
	}
	vouchers := Vouchers{Vouchers: []Voucher{{CardNumber: secret, Pin: Ptr(Secret(secret))}}}
	verifier := NewWebhookVerifier(secret)
	values := []any{
		credentials, TokenCredentials(secret), client, *client, verifier, *verifier, vouchers, &vouchers,
		holder{*client, credentials, *verifier},
		IssuedCredential{APISecret: secret}, RecoveryCodes{RecoveryCodes: []Secret{secret}}, Login{Password: secret},
	}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			if shown := fmt.Sprintf(verb, value); strings.Contains(shown, secret) || strings.Contains(shown, "733363723374") {
				t.Errorf("%s of %T shows the secret: %s", verb, value, shown)
			}
		}
	}
	if encoded, err := json.Marshal(Login{Password: secret}); err != nil || !strings.Contains(string(encoded), secret) {
		t.Errorf("a request contains it: %s %v", encoded, err)
	}
	_, err = New("https://"+secret+"\x00", Credentials{})
	if err == nil {
		t.Error("an invalid URL is accepted")
	}
}
