package ledger

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Reasons that a webhook is refused.
var (
	ErrWebhookHeader    = errors.New("X-Timestamp or X-Signature is missing")
	ErrWebhookTimestamp = errors.New("the timestamp is not valid, or too far from this machine's time")
	ErrWebhookSignature = errors.New("the signature does not match")
	ErrWebhookBody      = errors.New("the body is not an event")
)

// webhookTolerance is how far the timestamp may be from this machine's time.
const webhookTolerance = 5 * time.Minute

// webhookBodyLimit is the longest body that the handlers read. Envelopes are much smaller.
const webhookBodyLimit = 1 << 20

// WebhookVerifier verifies webhooks with the token of the webhook. The verbs of package fmt do not show it.
type WebhookVerifier struct {
	// A function, because package fmt shows everything else, even unexported fields.
	tokens func() []string
}

// NewWebhookVerifier returns a verifier that accepts each of the tokens, for example the new one and the one before a
// rotation.
func NewWebhookVerifier(tokens ...string) *WebhookVerifier {
	kept := append([]string(nil), tokens...)
	return &WebhookVerifier{func() []string { return kept }}
}

// VerifyWebhook verifies the raw body of a webhook, and returns its event.
func VerifyWebhook(token string, header http.Header, body []byte) (*WebhookEnvelope, error) {
	return NewWebhookVerifier(token).Verify(header, body)
}

// Verify verifies the raw body of a webhook, and returns its event.
func (v *WebhookVerifier) Verify(header http.Header, body []byte) (*WebhookEnvelope, error) {
	timestamp, signature := header.Get("X-Timestamp"), header.Get("X-Signature")
	if timestamp == "" || signature == "" {
		return nil, ErrWebhookHeader
	}
	now := time.Now()
	err := v.Check(timestamp, signature, body, now)
	if previous := header.Get("X-Signature-Previous"); previous != "" && errors.Is(err, ErrWebhookSignature) {
		// After a rotation, the service can sign with the replaced token, too.
		err = v.Check(timestamp, previous, body, now)
	}
	if err != nil {
		return nil, err
	}
	var event WebhookEnvelope
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrWebhookBody, err)
	}
	return &event, nil
}

// Check verifies the values of X-Timestamp and X-Signature, as of a time. If the signature does not match,
// X-Signature-Previous may: a rotation can ask for it.
func (v *WebhookVerifier) Check(timestamp, signature string, body []byte, now time.Time) error {
	sent, err := strconv.ParseUint(timestamp, 10, 62)
	off := now.Unix() - int64(sent)
	limit := int64(webhookTolerance / time.Second)
	if err != nil || off > limit || off < -limit {
		return ErrWebhookTimestamp
	}
	matches := false
	for _, token := range v.tokens() {
		expected := hmacHex(token, []byte(timestamp+"."), body)
		// Every token is compared, in constant time.
		// Anybody can sign with an empty one, such as that of an unset variable.
		matches = hmac.Equal([]byte(expected), []byte(signature)) && token != "" || matches
	}
	if !matches {
		return ErrWebhookSignature
	}
	return nil
}

// Handler calls a function with the event of each genuine webhook. It answers 401 to others, and 500 if the function fails,
// so that the service sends the webhook again. Deduplicate on EventID, answer quickly, and return nil for event types that
// you do not act on.
func (v *WebhookVerifier) Handler(handle func(context.Context, *WebhookEnvelope) error) http.Handler {
	return v.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, _ := WebhookFromContext(r.Context())
		if err := handle(r.Context(), event); err != nil {
			http.Error(w, "the event was not processed", http.StatusInternalServerError)
		}
	}))
}

// Middleware calls the next handler with genuine webhooks only. [WebhookFromContext] returns the event, and the body is
// still there to read.
func (v *WebhookVerifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, webhookBodyLimit))
		if err != nil {
			http.Error(w, "cannot read the body", http.StatusBadRequest)
			return
		}
		event, err := v.Verify(r.Header, body)
		switch {
		case errors.Is(err, ErrWebhookBody):
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), webhookKey{}, event))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

type webhookKey struct{}

// WebhookFromContext returns the event that the middleware has verified.
func WebhookFromContext(ctx context.Context) (*WebhookEnvelope, bool) {
	event, isVerified := ctx.Value(webhookKey{}).(*WebhookEnvelope)
	return event, isVerified
}
