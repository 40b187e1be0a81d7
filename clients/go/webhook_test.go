package ledger

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

const eventJSON = `{"event_id": "019c", "event_type": "order.delivered", "created_at": "2026-01-31T12:00:00.000Z", "data": {"id": 42}}`

// deliver sends a webhook signed with a token to a handler, and returns the status and the body of its answer.
func deliver(t *testing.T, handler http.Handler, token, body string, change func(http.Header)) (int, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	request, err := http.NewRequest("POST", server.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Timestamp", timestamp)
	request.Header.Set("X-Signature", hmacHex(token, []byte(timestamp+"."), []byte(body)))
	if change != nil {
		change(request.Header)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answered, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answered)
}

func TestTheHandlerGetsGenuineWebhooksOnly(t *testing.T) {
	var received []string
	handler := NewWebhookVerifier("new", "old", "").Handler(func(_ context.Context, event *WebhookEnvelope) error {
		received = append(received, event.EventID)
		return nil
	})
	old := strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)
	cases := []struct {
		name, token, body string
		change            func(http.Header)
		status            int
	}{
		{"new token", "new", eventJSON, nil, 200},
		{"old token", "old", eventJSON, nil, 200},
		{"another token", "other", eventJSON, nil, 401},
		{"too old", "new", eventJSON, func(h http.Header) {
			h.Set("X-Timestamp", old)
			h.Set("X-Signature", hmacHex("new", []byte(old+"."), []byte(eventJSON)))
		}, 401},
		{"an empty token, which the verifier has", "", eventJSON, nil, 401},
		{"no signature", "new", eventJSON, func(h http.Header) { h.Del("X-Signature") }, 401},
		{"no timestamp", "new", eventJSON, func(h http.Header) { h.Del("X-Timestamp") }, 401},
		{"no event", "new", "hello", nil, 400},
		{"too long", "new", strings.Repeat("x", webhookBodyLimit+1), nil, 400},
	}
	for _, c := range cases {
		if status, answered := deliver(t, handler, c.token, c.body, c.change); status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, status, answered, c.status)
		}
	}
	if len(received) != 2 {
		t.Errorf("received %q", received)
	}
}

func TestAFailureOfTheHandlerMakesTheServiceTryAgain(t *testing.T) {
	handler := NewWebhookVerifier("token").Handler(func(context.Context, *WebhookEnvelope) error {
		return errors.New("the database password is s3cr3t")
	})
	status, answered := deliver(t, handler, "token", eventJSON, nil)
	if status != 500 || strings.Contains(answered, "s3cr3t") {
		t.Errorf("%d %s", status, answered)
	}
}

func TestTheMiddlewareKeepsTheBody(t *testing.T) {
	handler := NewWebhookVerifier("token").Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, isVerified := WebhookFromContext(r.Context())
		body, err := io.ReadAll(r.Body)
		if err != nil || !isVerified || event.EventType != WebhookEventTypeOrderDelivered || string(body) != eventJSON {
			t.Errorf("%v %v %q %v", event, isVerified, body, err)
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	if status, _ := deliver(t, handler, "token", eventJSON, nil); status != 202 {
		t.Error(status)
	}
}

func TestOneCallVerifies(t *testing.T) {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	signature := hmacHex("token", []byte(timestamp+"."), []byte(eventJSON))
	header := http.Header{"X-Timestamp": {timestamp}, "X-Signature": {signature}}
	event, err := VerifyWebhook("token", header, []byte(eventJSON))
	if err != nil || event.EventID != "019c" {
		t.Errorf("%v %v", event, err)
	}
	if _, err := VerifyWebhook("token", header, []byte(eventJSON+" ")); !errors.Is(err, ErrWebhookSignature) {
		t.Errorf("%v", err)
	}
	if _, isVerified := WebhookFromContext(context.Background()); isVerified {
		t.Error("an event from nowhere")
	}
}

func TestAfterARotationTheTokenBeforeItStillVerifies(t *testing.T) {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	header := http.Header{}
	header.Set("X-Timestamp", timestamp)
	header.Set("X-Signature", hmacHex("new", []byte(timestamp+"."), []byte(eventJSON)))
	header.Set("X-Signature-Previous", hmacHex("old", []byte(timestamp+"."), []byte(eventJSON)))
	for _, token := range []string{"new", "old"} {
		if _, err := VerifyWebhook(token, header, []byte(eventJSON)); err != nil {
			t.Errorf("%s: %v", token, err)
		}
	}
	if _, err := VerifyWebhook("other", header, []byte(eventJSON)); !errors.Is(err, ErrWebhookSignature) {
		t.Errorf("another token: %v", err)
	}
	if _, err := VerifyWebhook("old", header, []byte("{}")); !errors.Is(err, ErrWebhookSignature) {
		t.Errorf("another body: %v", err)
	}
}
