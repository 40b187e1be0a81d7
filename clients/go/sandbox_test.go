package ledger_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	ledger "rewards-ledger.example/client"
)

// sandbox returns the environment of clients/test, or skips the test.
func sandbox(t *testing.T) func(name string) string {
	t.Helper()
	if os.Getenv("LEDGER_URL") == "" {
		t.Skip("SKIPPED: no live sandbox; clients/test go starts one")
	}
	return func(name string) string {
		value := os.Getenv(name)
		if value == "" {
			t.Fatalf("%s is not set", name)
		}
		return value
	}
}

func signed(t *testing.T, variable func(string) string) *ledger.Client {
	t.Helper()
	credentials := ledger.SignedCredentials(
		variable("LEDGER_SIGNED_API_KEY"), variable("LEDGER_SIGNED_API_SECRET"), variable("LEDGER_SIGNING_SECRET"))
	client, err := ledger.New(variable("LEDGER_URL"), credentials)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// product finds a product by its name, over pages of one product.
func product(ctx context.Context, t *testing.T, client *ledger.Client, name string) ledger.Product {
	t.Helper()
	products := client.ListProducts(ledger.ListProductsQuery{Limit: 1})
	number := int64(0)
	var found ledger.Product
	for products.Next(ctx) {
		number++
		if products.Item().Name == name {
			found = products.Item()
		}
	}
	if products.Err() != nil || number != products.TotalCount() || found.ID == 0 {
		t.Fatalf("%d of %d products, %v", number, products.TotalCount(), products.Err())
	}
	return found
}

func TestAnOrderInALiveSandbox(t *testing.T) {
	client := signed(t, sandbox(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	card := product(ctx, t, client, "Coffee Card")

	feed := client.Events("latest", ledger.WebhookEventTypeOrderDelivered)
	if _, err := feed.NextPage(ctx); err != nil {
		t.Fatal(err)
	}
	body := ledger.PlaceOrder{ProductID: card.ID, Denomination: "25.00", Quantity: 2, Metadata: map[string]any{"basket": "9"}}
	var first, second ledger.Response
	order, err := client.PlaceOrder(ctx, body, ledger.WithIdempotencyKey("go-"+feed.Cursor()), ledger.WithResponse(&first))
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.PlaceOrder(ctx, body, ledger.WithIdempotencyKey("go-"+feed.Cursor()), ledger.WithResponse(&second))
	if err != nil || again.ID != order.ID || first.IsReplayed || !second.IsReplayed {
		t.Errorf("%v %+v %+v", err, again, second)
	}

	for feed.Next(ctx) && feed.Err() == nil {
		delivered, err := feed.Event().Order()
		if err != nil {
			t.Fatal(err)
		}
		if delivered.ID == order.ID {
			break
		}
	}
	if feed.Err() != nil {
		t.Fatal(feed.Err())
	}
	// A feed that begins at the time of the event has it with the same sequence.
	since := client.Events("", ledger.WebhookEventTypeOrderDelivered).Since(feed.Event().CreatedAt)
	for since.Next(ctx) && since.Event().EventID != feed.Event().EventID {
		if since.Event().CreatedAt.Before(feed.Event().CreatedAt) || since.Sequence() >= feed.Sequence() {
			t.Errorf("%d %+v comes first", since.Sequence(), since.Event())
		}
	}
	if since.Err() != nil || since.Sequence() != feed.Sequence() || feed.Sequence() == 0 {
		t.Errorf("%v, sequence %d and %d", since.Err(), since.Sequence(), feed.Sequence())
	}
	order, err = client.GetOrder(ctx, order.ID)
	if err != nil || order.Status != ledger.OrderStatusDelivered || order.Amount != "50.00" || order.Metadata["basket"] != "9" {
		t.Errorf("%v %+v", err, order)
	}
	vouchers, err := client.GetOrderVouchers(ctx, order.ID)
	if err != nil || len(vouchers.Vouchers) != 2 || vouchers.Vouchers[0].CardNumber.Expose() == "" {
		t.Errorf("%v %v", err, vouchers)
	}
}

func TestACancellationAndMoneyInALiveSandbox(t *testing.T) {
	client := signed(t, sandbox(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	never := product(ctx, t, client, "Travel Card")
	order, err := client.PlaceOrder(ctx, ledger.PlaceOrder{ProductID: never.ID, Denomination: "100", Quantity: 1})
	if err != nil {
		t.Fatal(err)
	}
	order, err = client.CancelOrder(ctx, order.ID, &ledger.CancelOrder{Reason: ledger.Ptr("changed my mind")})
	if err != nil || order.Status != ledger.OrderStatusCancelled || order.RefundedAmount != "100.00" {
		t.Errorf("%v %+v", err, order)
	}
	if _, err := client.CancelOrder(ctx, order.ID, nil); !errors.Is(err, ledger.ErrorCodeOrderNotCancellable) {
		t.Errorf("%v", err)
	}
	wallets := client.ListWallets(ledger.ListWalletsQuery{})
	if !wallets.Next(ctx) {
		t.Fatal(wallets.Err())
	}
	funding, err := client.FundOwnWallet(ctx, wallets.Item().ID, ledger.FundOwnWallet{Amount: "0.10"})
	if err != nil || funding.Amount != "0.10" || funding.Type != ledger.TransactionTypeCredit {
		t.Errorf("%v %+v", err, funding)
	}
}

func TestRefusalsOfALiveSandbox(t *testing.T) {
	variable := sandbox(t)
	ctx := context.Background()
	attempt := func(credentials ledger.Credentials, body ledger.PlaceOrder) error {
		client, err := ledger.New(variable("LEDGER_URL"), credentials)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.PlaceOrder(ctx, body)
		return err
	}
	plain := ledger.APIKeyCredentials(variable("LEDGER_API_KEY"), variable("LEDGER_API_SECRET"))
	unsigned := ledger.APIKeyCredentials(variable("LEDGER_SIGNED_API_KEY"), variable("LEDGER_SIGNED_API_SECRET"))
	body := ledger.PlaceOrder{ProductID: 1, Denomination: "25", Quantity: 1}
	for code, err := range map[ledger.ErrorCode]error{
		ledger.ErrorCodeUnauthorized:          attempt(ledger.APIKeyCredentials(variable("LEDGER_API_KEY"), "wrong"), body),
		ledger.ErrorCodeHmacSignatureRequired: attempt(unsigned, body),
		ledger.ErrorCodeProductUnavailable:    attempt(plain, ledger.PlaceOrder{ProductID: 1 << 40, Denomination: "25", Quantity: 1}),
		ledger.ErrorCodeValidationFailure:     attempt(plain, ledger.PlaceOrder{ProductID: 1, Denomination: "25.001", Quantity: 1}),
	} {
		var refusal *ledger.Error
		if !errors.Is(err, code) || !errors.As(err, &refusal) || refusal.RequestID == "" {
			t.Errorf("%v, want %s", err, string(code))
		}
	}
}

func TestAWebhookOfALiveSandbox(t *testing.T) {
	variable := sandbox(t)
	client := signed(t, variable)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	certificate, err := tls.LoadX509KeyPair(variable("LEDGER_WEBHOOK_CERTIFICATE"), variable("LEDGER_WEBHOOK_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The first delivery can only come after the registration, whose response has the token.
	webhook, err := client.RegisterWebhook(ctx, ledger.RegisterWebhook{
		Name: "go", URL: "https://localhost:" + port, Events: []ledger.WebhookEventType{ledger.WebhookEventTypeOrderCreated},
	})
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan *ledger.WebhookEnvelope, 10)
	verifier := ledger.NewWebhookVerifier(webhook.Token.Expose())
	receiver := httptest.NewUnstartedServer(verifier.Handler(func(_ context.Context, event *ledger.WebhookEnvelope) error {
		received <- event
		return nil
	}))
	receiver.Listener = listener
	receiver.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	receiver.StartTLS()
	defer receiver.Close()

	card := product(ctx, t, client, "Coffee Card")
	order, err := client.PlaceOrder(ctx, ledger.PlaceOrder{ProductID: card.ID, Denomination: "25", Quantity: 1})
	if err != nil {
		t.Fatal(err)
	}
	for found := false; !found; {
		select {
		case event := <-received:
			created, err := event.Order()
			if err != nil || event.EventType != ledger.WebhookEventTypeOrderCreated {
				t.Fatalf("%v %+v", err, event)
			}
			found = created.ID == order.ID
		case <-ctx.Done():
			t.Fatal("the webhook did not arrive")
		}
	}
	// A forged copy is refused.
	forger := receiver.Client()
	forger.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	response, err := forger.Post("https://"+listener.Addr().String(), "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Error(response.Status)
	}
	if _, err := client.DeleteWebhook(ctx, webhook.ID); err != nil {
		t.Error(err)
	}
}
