package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strconv"
	"strings"
)

// CanonicalString returns the five lines that the signature of a request covers. The path and the query are as sent, without
// any decoding. A [Client] with a signing secret signs by itself.
func CanonicalString(method, path, query string, body []byte, timestamp int64) string {
	var pairs [][2]string
	for _, pair := range strings.Split(query, "&") {
		if pair != "" {
			key, value, _ := strings.Cut(pair, "=")
			pairs = append(pairs, [2]string{key, value})
		}
	}
	sort.SliceStable(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	sorted := make([]string, len(pairs))
	for i, pair := range pairs {
		sorted[i] = pair[0] + "=" + pair[1]
	}
	if path = strings.TrimRight(path, "/"); path == "" {
		path = "/"
	}
	digest := sha256.Sum256(body)
	lines := []string{
		strings.ToUpper(method), path, strings.Join(sorted, "&"), hex.EncodeToString(digest[:]), strconv.FormatInt(timestamp, 10),
	}
	return strings.Join(lines, "\n")
}

// XSignature returns the value of the header X-Signature. The timestamp is in Unix seconds.
func XSignature(secret, method, path, query string, body []byte, timestamp int64) string {
	canonical := CanonicalString(method, path, query, body, timestamp)
	return "t=" + strconv.FormatInt(timestamp, 10) + ",v1=" + hmacHex(secret, []byte(canonical))
}

// hmacHex returns the HMAC-SHA256 of the parts, one after the other, in lowercase hex.
func hmacHex(secret string, parts ...[]byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}
