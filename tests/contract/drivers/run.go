// Runs the guides' Go code, which is in the package client, over the vectors.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"

	"guides/client"
)

type vector struct {
	Name, Method, Path, Query, Secret, Canonical, Header, Token, Signature string
	Body                                                                   string `json:"body_base64"`
	Timestamp                                                              json.RawMessage
	Now                                                                    int64
	Genuine                                                                bool
}

type vectors struct{ Sign, Verify []vector }

var count int

func check(v vector, made, expected any) {
	count++
	if made != expected {
		log.Fatalf("%s: %v is not %v", v.Name, made, expected)
	}
}

func read(path string) (read vectors) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		log.Fatal(err)
	}
	return read
}

func main() {
	body := func(v vector) []byte {
		bytes, err := base64.StdEncoding.DecodeString(v.Body)
		if err != nil {
			log.Fatal(err)
		}
		return bytes
	}
	for _, v := range read(os.Args[1]).Sign {
		timestamp, _ := strconv.ParseInt(string(v.Timestamp), 10, 64)
		check(v, client.CanonicalString(v.Method, v.Path, v.Query, body(v), timestamp), v.Canonical)
		check(v, client.XSignature(v.Secret, v.Method, v.Path, v.Query, body(v), timestamp), v.Header)
	}
	deliveries := read(os.Args[2])
	text := func(v vector) (text string) {
		_ = json.Unmarshal(v.Timestamp, &text)
		return text
	}
	for _, v := range deliveries.Sign {
		now, _ := strconv.ParseInt(text(v), 10, 64)
		check(v, client.IsGenuine(v.Token, text(v), body(v), v.Signature, now), true)
	}
	for _, v := range deliveries.Verify {
		check(v, client.IsGenuine(v.Token, text(v), body(v), v.Signature, v.Now), v.Genuine)
	}
	fmt.Println(count)
}
