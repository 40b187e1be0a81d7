package ledger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"
)

// RetryPolicy is the number of attempts at a request, and the pauses between them.
//
// A request is repeated if nothing happened (429, 503, no connection), while an earlier attempt is being processed (409
// E_IDEMPOTENCY_IN_PROGRESS), and if its outcome is unknown (504, 502 of a proxy, no response) and repeating it is safe. It is
// safe for GET, PUT and DELETE, and for a POST with an idempotency key.
type RetryPolicy struct {
	// Attempts in all, from 1.
	Attempts int
	// FirstPause is the pause after the first attempt. It doubles from attempt to attempt, and a random part of up to half is
	// taken off.
	FirstPause time.Duration
	// LongestPause is the longest pause. If the service asks for a longer one, its refusal is returned instead. A pause that
	// it asks for is prolonged by a random part of the first pause, so that clients do not come back together.
	LongestPause time.Duration
}

// DefaultRetryPolicy makes five attempts, with pauses of up to 1, 2, 4 and 8 seconds, or as long as the service asks for up
// to a minute.
var DefaultRetryPolicy = RetryPolicy{Attempts: 5, FirstPause: time.Second, LongestPause: time.Minute}

// pause returns the pause before the next attempt, or false if there is none. The failure is what the attempt ended with,
// and random is from 0 to 1.
func (p RetryPolicy) pause(attempt int, failure error, isRepeatable bool, random float64) (time.Duration, bool) {
	var refusal *Error
	var connection *ConnectionError
	var asked time.Duration
	mayRepeat := false
	switch {
	case errors.As(failure, &refusal):
		asked = refusal.RetryAfter
		switch refusal.Status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			mayRepeat = true
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			mayRepeat = isRepeatable
		case http.StatusConflict:
			mayRepeat = refusal.Code == ErrorCodeIdempotencyInProgress
		}
	case errors.As(failure, &connection):
		mayRepeat = isRepeatable || connection.isUnsent()
	}
	if !mayRepeat || attempt >= p.Attempts || asked > p.LongestPause {
		return 0, false
	}
	if asked > 0 {
		return asked + time.Duration(float64(p.FirstPause)*random), true
	}
	doubled := float64(p.FirstPause) * math.Pow(2, float64(attempt-1))
	return time.Duration(math.Min(doubled, float64(p.LongestPause)) * (1 - random/2)), true
}

func isRepeatable(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		return true
	}
	return request.Header.Get(idempotencyKeyHeader) != ""
}

// retryAfter returns the time that a response asks to wait for, or 0.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// randomFraction returns a random number from 0 to 1. The random numbers of math/rand would be the same in every process.
func randomFraction() (float64, error) {
	var bytes [4]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		return 0, err
	}
	return float64(binary.BigEndian.Uint32(bytes[:])) / math.MaxUint32, nil
}
