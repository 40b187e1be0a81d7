package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"
)

// ErrorCodeRateLimitExceeded is the code of a refusal by a rate limit.
const ErrorCodeRateLimitExceeded ErrorCode = "rate_limit_exceeded"

// Error is a refusal by the service. Branch on its code, with errors.Is and the constants of [ErrorCode]; for a code that
// you do not know, on the class of its status.
type Error struct {
	// Status is the HTTP status.
	Status int
	Code   ErrorCode
	// Message is an explanation for people. Its wording may change.
	Message string
	// Messages are the problems of each field, if the error is about fields.
	Messages map[string][]string
	// RequestID identifies the request. Quote it to support.
	RequestID string
	// RetryAfter is the time after which the request may be repeated, or 0.
	RetryAfter time.Duration
}

// Error describes the refusal.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s: %s", e.Status, string(e.Code), e.Message)
	fields := make([]string, 0, len(e.Messages))
	for field := range e.Messages {
		fields = append(fields, field)
	}
	sort.Strings(fields)
	for _, field := range fields {
		fmt.Fprintf(&text, "; %s: %s", field, strings.Join(e.Messages[field], ", "))
	}
	if e.RequestID != "" {
		fmt.Fprintf(&text, " (request %s)", e.RequestID)
	}
	return text.String()
}

// Is returns whether the target is the code of the refusal.
func (e *Error) Is(target error) bool {
	code, isCode := target.(ErrorCode)
	return isCode && code == e.Code
}

// Error makes a code a target of errors.Is.
func (c ErrorCode) Error() string { return string(c) }

// ConnectionError says that no response arrived. A change that was requested may have happened.
type ConnectionError struct {
	base  string
	cause error
}

// Error names the service and the cause, without the request's query.
func (e *ConnectionError) Error() string {
	return "no response from " + e.base + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.cause }

func newConnectionError(base string, cause error) *ConnectionError {
	var withURL *url.Error
	if errors.As(cause, &withURL) {
		cause = withURL.Err
	}
	return &ConnectionError{base, cause}
}

// isUnsent returns whether there was no connection, so that the request was not sent.
func (e *ConnectionError) isUnsent() bool {
	var operation *net.OpError
	return errors.As(e.cause, &operation) && operation.Op == "dial"
}

// newError reads a response that is not a success. The body may be that of a proxy.
func newError(response *Response, body []byte) *Error {
	refusal := &Error{
		Status:     response.Status,
		Message:    http.StatusText(response.Status),
		RequestID:  response.RequestID,
		RetryAfter: retryAfter(response.Header),
	}
	var reply struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &reply) != nil {
		return refusal
	}
	var detail ErrorDetail
	if json.Unmarshal(reply.Error, &detail) == nil {
		refusal.Code, refusal.Messages = detail.Code, detail.Messages
		reply.Message = detail.Message
	} else if json.Unmarshal(reply.Error, &refusal.Code) != nil { // a rate limit's refusal is flat
		return refusal
	}
	if reply.Message != "" {
		refusal.Message = reply.Message
	}
	return refusal
}
