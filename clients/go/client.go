package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const idempotencyKeyHeader = "Idempotency-Key"

// defaultTimeout of one attempt is longer than the service's own deadlines and the wait for events.
const defaultTimeout = time.Minute

// Credentials are sent with every request. The verbs of package fmt do not show them.
type Credentials struct {
	// A function, because package fmt shows everything else, even unexported fields.
	reveal func() credentials
}

type credentials struct {
	key, secret, signingSecret, token string
}

// APIKeyCredentials returns the credentials of an API key.
func APIKeyCredentials(key, secret string) Credentials {
	return credentials{key: key, secret: secret}.hide()
}

// SignedCredentials returns the credentials of an API key that requires signed requests.
func SignedCredentials(key, secret, signingSecret string) Credentials {
	return credentials{key: key, secret: secret, signingSecret: signingSecret}.hide()
}

// TokenCredentials returns the credentials of a person, who has logged in.
func TokenCredentials(accessToken string) Credentials {
	return credentials{token: accessToken}.hide()
}

func (c credentials) hide() Credentials { return Credentials{func() credentials { return c }} }

// String hides the credentials.
func (c Credentials) String() string { return hidden }

// GoString hides the credentials.
func (c Credentials) GoString() string { return hidden }

// authenticate sets the headers of one attempt. The signature contains the time, so each attempt has its own.
func (c Credentials) authenticate(request *http.Request, body []byte, now time.Time) {
	if c.reveal == nil {
		return
	}
	own := c.reveal()
	if own.token != "" {
		request.Header.Set("Authorization", "Bearer "+own.token)
		return
	}
	request.Header.Set("X-API-Key", own.key)
	request.Header.Set("X-API-Secret", own.secret)
	if own.signingSecret != "" {
		path, query := request.URL.EscapedPath(), request.URL.RawQuery
		signature := XSignature(own.signingSecret, request.Method, path, query, body, now.Unix())
		request.Header.Set("X-Signature", signature)
	}
}

// Client calls one service with the credentials of one caller. It pools its connections, and may be used by several
// goroutines at a time.
type Client struct {
	http        *http.Client
	base        *url.URL
	credentials Credentials
	retries     RetryPolicy
	timeout     time.Duration
}

// Option changes a client.
type Option func(*Client)

// WithRetryPolicy changes when requests are repeated.
func WithRetryPolicy(policy RetryPolicy) Option { return func(c *Client) { c.retries = policy } }

// WithTimeout changes the timeout of one attempt. The default is a minute.
func WithTimeout(timeout time.Duration) Option { return func(c *Client) { c.timeout = timeout } }

// WithHTTPClient sends requests through another HTTP client. It must not follow redirects.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// New returns a client of the service at a URL, for example https://rewards.example.com. Zero credentials are for operations
// such as a login.
func New(base string, credentials Credentials, options ...Option) (*Client, error) {
	parsed, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || parsed.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a service", base)
	}
	// A redirect could lead the credentials to another host.
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &Client{
		http:        &http.Client{CheckRedirect: noRedirects},
		base:        parsed,
		credentials: credentials,
		retries:     DefaultRetryPolicy,
		timeout:     defaultTimeout,
	}
	for _, option := range options {
		option(client)
	}
	return client, nil
}

// Response is what a response has besides its data.
type Response struct {
	Status int
	Header http.Header
	// RequestID identifies the request. Quote it to support.
	RequestID string
	// IsReplayed says whether this is the response to an earlier request with the same idempotency key.
	IsReplayed bool
}

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct {
	header   http.Header
	response *Response
}

// WithIdempotencyKey sets the idempotency key of a POST: 1 to 255 printable ASCII characters. Use the same key for each call
// that means the same thing, for example after your program was restarted. Put no personal data into it. By default, each
// call has a random key, which its attempts share.
func WithIdempotencyKey(key string) CallOption { return WithHeader(idempotencyKeyHeader, key) }

// WithHeader sets a header of the request.
func WithHeader(name, value string) CallOption {
	return func(o *callOptions) { o.header.Set(name, value) }
}

// WithResponse stores the response's status and headers. A refusal has them, too.
func WithResponse(into *Response) CallOption { return func(o *callOptions) { o.response = into } }

// call is a request of an operation.
type call struct {
	method string
	path   string
	query  url.Values
	// body is sent as JSON. Nil sends none.
	body any
	// keyed says whether the operation takes an idempotency key.
	keyed bool
}

// send sends a call, and repeats it by the client's policy. It returns the body of a success.
func (c *Client) send(ctx context.Context, call call, options []CallOption) (*Response, []byte, error) {
	settings := callOptions{header: http.Header{"Accept": {"application/json"}}}
	if call.keyed {
		key, err := newKey()
		if err != nil {
			return nil, nil, err
		}
		settings.header.Set(idempotencyKeyHeader, key)
	}
	var body []byte
	if call.body != nil {
		encoded, err := json.Marshal(call.body)
		if err != nil {
			return nil, nil, err
		}
		body = encoded
		settings.header.Set("Content-Type", "application/json")
	}
	for _, option := range options {
		option(&settings)
	}
	target := c.base.String() + call.path
	if query := call.query.Encode(); query != "" {
		target += "?" + query
	}
	for attempt := 1; ; attempt++ {
		request, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(body))
		if err != nil {
			return nil, nil, err
		}
		request.Header = settings.header.Clone()
		response, content, failure := c.attempt(request, body)
		if response != nil && settings.response != nil {
			*settings.response = *response
		}
		if failure == nil {
			return response, content, nil
		}
		random, err := randomFraction()
		if err != nil {
			return nil, nil, err
		}
		pause, mayRepeat := c.retries.pause(attempt, failure, isRepeatable(request), random)
		if !mayRepeat || ctx.Err() != nil {
			return response, nil, failure
		}
		if err := sleep(ctx, pause); err != nil {
			return response, nil, err
		}
	}
}

// attempt sends a request once. It returns the body of a success.
func (c *Client) attempt(request *http.Request, body []byte) (*Response, []byte, error) {
	ctx, cancel := context.WithTimeout(request.Context(), c.timeout)
	defer cancel()
	c.credentials.authenticate(request, body, time.Now())
	answer, err := c.http.Do(request.WithContext(ctx))
	if err != nil {
		return nil, nil, newConnectionError(c.base.String(), err)
	}
	defer answer.Body.Close() // what it could not read, ReadAll reports
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, nil, newConnectionError(c.base.String(), err)
	}
	response := &Response{
		Status:     answer.StatusCode,
		Header:     answer.Header,
		RequestID:  answer.Header.Get("X-Request-ID"),
		IsReplayed: answer.Header.Get("Idempotent-Replayed") == "true",
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return response, nil, newError(response, content)
	}
	return response, content, nil
}

// callBare calls an operation whose reply is the object.
func callBare[T any](ctx context.Context, c *Client, call call, options []CallOption) (*T, error) {
	response, body, err := c.send(ctx, call, options)
	if err != nil {
		return nil, err
	}
	var object T
	return &object, decode(response, body, &object)
}

// callData calls an operation whose reply wraps the object in data.
func callData[T any](ctx context.Context, c *Client, call call, options []CallOption) (*T, error) {
	reply, err := callBare[struct {
		Data *T `json:"data"`
	}](ctx, c, call, options)
	if err != nil {
		return nil, err
	}
	if reply.Data == nil {
		return nil, errors.New("the reply has no data")
	}
	return reply.Data, nil
}

// callList calls an operation that returns a list without pages.
func callList[T any](ctx context.Context, c *Client, field string, call call, options []CallOption) ([]T, error) {
	response, body, err := c.send(ctx, call, options)
	if err != nil {
		return nil, err
	}
	return decodeList[T](response, body, field)
}

// callBytes calls an operation that returns bytes.
func callBytes(ctx context.Context, c *Client, call call, options []CallOption) ([]byte, error) {
	_, body, err := c.send(ctx, call, append([]CallOption{WithHeader("Accept", "*/*")}, options...))
	return body, err
}

func decode(response *Response, body []byte, object any) error {
	if err := json.Unmarshal(body, object); err != nil {
		return fmt.Errorf("unreadable response to request %s: %w", response.RequestID, err)
	}
	return nil
}

func decodeList[T any](response *Response, body []byte, field string) ([]T, error) {
	var reply struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := decode(response, body, &reply); err != nil {
		return nil, err
	}
	var items []T
	return items, decode(response, reply.Data[field], &items)
}

// expand replaces the parameters of a path: name, value, and so on.
func expand(path string, parameters ...any) string {
	for i := 0; i+1 < len(parameters); i += 2 {
		value := url.PathEscape(fmt.Sprint(parameters[i+1]))
		path = strings.Replace(path, fmt.Sprintf("{%v}", parameters[i]), value, 1)
	}
	return path
}

// setValue adds a parameter to a query, unless it is zero.
func setValue[T comparable](values url.Values, name string, value T) {
	var zero T
	if value == zero {
		return
	}
	text := fmt.Sprint(value)
	if moment, isTime := any(value).(time.Time); isTime {
		text = moment.UTC().Format(time.RFC3339Nano)
	}
	values.Set(name, text)
}

// optional returns a body, or nil for none. A nil pointer in an interface would not be nil.
func optional[T any](body *T) any {
	if body == nil {
		return nil
	}
	return body
}

// newKey returns a random UUID.
func newKey() (string, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-"), nil
}
