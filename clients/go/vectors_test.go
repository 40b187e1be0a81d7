package ledger

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// readVectors reads a file of docs/vectors.
func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func fromBase64(t *testing.T, text string) []byte {
	t.Helper()
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestRequestsAreSignedAsTheVectorsSay(t *testing.T) {
	var vectors struct {
		Sign []struct {
			Name, Method, Path, Query, Secret, Canonical, Header string
			Body                                                 string `json:"body_base64"`
			Timestamp                                            int64
		}
	}
	readVectors(t, "request-signing.json", &vectors)
	if len(vectors.Sign) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Sign {
		body := fromBase64(t, v.Body)
		if canonical := CanonicalString(v.Method, v.Path, v.Query, body, v.Timestamp); canonical != v.Canonical {
			t.Errorf("%s: canonical string %q, want %q", v.Name, canonical, v.Canonical)
		}
		if header := XSignature(v.Secret, v.Method, v.Path, v.Query, body, v.Timestamp); header != v.Header {
			t.Errorf("%s: header %q, want %q", v.Name, header, v.Header)
		}
	}
}

func TestWebhooksAreVerifiedAsTheVectorsSay(t *testing.T) {
	var vectors struct {
		Sign, Verify []struct {
			Name, Token, Timestamp, Signature string
			Body                              string `json:"body_base64"`
			Now                               json.Number
			Genuine                           bool
		}
	}
	readVectors(t, "webhook-signing.json", &vectors)
	if len(vectors.Sign) == 0 || len(vectors.Verify) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Sign {
		if signature := hmacHex(v.Token, []byte(v.Timestamp+"."), fromBase64(t, v.Body)); signature != v.Signature {
			t.Errorf("%s: signature %q, want %q", v.Name, signature, v.Signature)
		}
	}
	for _, v := range vectors.Verify {
		now, err := v.Now.Int64()
		if err != nil {
			t.Fatal(err)
		}
		err = NewWebhookVerifier(v.Token).Check(v.Timestamp, v.Signature, fromBase64(t, v.Body), time.Unix(now, 0))
		if (err == nil) != v.Genuine {
			t.Errorf("%s: genuine is %v, but got %v", v.Name, v.Genuine, err)
		}
	}
}
