package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	ledger "rewards-ledger.example/client"
)

func Example() {
	credentials := ledger.APIKeyCredentials(os.Getenv("LEDGER_API_KEY"), os.Getenv("LEDGER_API_SECRET"))
	client, err := ledger.New(os.Getenv("LEDGER_URL"), credentials)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	order, err := client.PlaceOrder(ctx, ledger.PlaceOrder{
		ProductID:       1,
		Denomination:    "25.00",
		Quantity:        2,
		ClientReference: ledger.Ptr("basket-9"),
	})
	if errors.Is(err, ledger.ErrorCodeInsufficientBalance) {
		log.Fatal("fund the wallet first")
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.ReferenceCode, order.Status, order.Amount)
}

func ExampleClient_ListOrders() {
	var client *ledger.Client
	var ctx context.Context
	orders := client.ListOrders(ledger.ListOrdersQuery{Status: ledger.OrderStatusDelayed})
	for orders.Next(ctx) {
		fmt.Println(orders.Item().ReferenceCode)
	}
	if err := orders.Err(); err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Events() {
	var client *ledger.Client
	var ctx context.Context
	var stored string
	var process func(*ledger.WebhookEnvelope)
	var store func(cursor string)
	feed := client.Events(stored)
	for feed.Next(ctx) {
		process(feed.Event())
		store(feed.Cursor())
	}
	log.Fatal(feed.Err())
}

func ExampleWebhookVerifier_Handler() {
	verifier := ledger.NewWebhookVerifier(os.Getenv("WEBHOOK_TOKEN"))
	http.Handle("/hook", verifier.Handler(func(ctx context.Context, event *ledger.WebhookEnvelope) error {
		if event.EventType != ledger.WebhookEventTypeOrderDelivered {
			return nil
		}
		order, err := event.Order()
		if err != nil {
			return err
		}
		fmt.Println(event.EventID, order.ReferenceCode)
		return nil
	}))
}
