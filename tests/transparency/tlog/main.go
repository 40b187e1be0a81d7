// Reads a log published as C2SP tlog-tiles, with golang.org/x/mod/sumdb. That is the implementation of signed notes and
// tile proofs that verifies Go's checksum database.
//
//	main <prefix> <verifier key> <operator token>
//
// It opens the checkpoint, verifies every tile against it, hashes every entry, and checks both its own proofs from the
// tiles and the proofs that the service returns. It prints the number of records that it has checked.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

func get(url, token string) ([]byte, error) {
	request, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("%s: %s %s", url, response.Status, body)
	}
	return body, err
}

// Tile paths of the checksum database contain the tile height, those of tlog-tiles do not.
func path(tile tlog.Tile) string {
	return "tile/" + strings.TrimPrefix(tile.Path(), fmt.Sprintf("tile/%d/", height))
}

type tiles struct{ prefix string }

func (t tiles) Height() int                     { return height }
func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var read [][]byte
	for _, tile := range wanted {
		data, err := get(t.prefix+"/"+path(tile), "")
		if err != nil {
			return nil, err
		}
		read = append(read, data)
	}
	return read, nil
}

func open(prefix, key string) (tlog.Tree, error) {
	var tree tlog.Tree
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return tree, err
	}
	checkpoint, err := get(prefix+"/checkpoint", "")
	if err != nil {
		return tree, err
	}
	opened, err := note.Open(checkpoint, note.VerifierList(verifier))
	if err != nil {
		return tree, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() {
		return tree, fmt.Errorf("not a checkpoint of %s: %q", verifier.Name(), opened.Text)
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return tree, err
	}
	tree.Hash, err = tlog.ParseHash(lines[2])
	return tree, err
}

// Returns the entries of the whole log, from their bundles.
func entries(prefix, token string, size int64) ([][]byte, error) {
	var all [][]byte
	for first := int64(0); first < size; first += 1 << height {
		width := size - first
		if width > 1<<height {
			width = 1 << height
		}
		// L = -1 denotes entries in the checksum database.
		tile := tlog.Tile{H: height, L: -1, N: first >> height, W: int(width)}
		place := strings.TrimPrefix(tile.Path(), fmt.Sprintf("tile/%d/data/", height))
		bundle, err := get(prefix+"/tile/entries/"+place, token)
		if err != nil {
			return nil, err
		}
		for len(bundle) > 0 {
			if len(bundle) < 2 || len(bundle)-2 < int(binary.BigEndian.Uint16(bundle)) {
				return nil, fmt.Errorf("bundle %s is cut off", place)
			}
			length := int(binary.BigEndian.Uint16(bundle))
			all = append(all, bundle[2:2+length])
			bundle = bundle[2+length:]
		}
	}
	if int64(len(all)) != size {
		return nil, fmt.Errorf("%d entries of %d", len(all), size)
	}
	return all, nil
}

// Returns a proof from the service.
func served(url string) ([]tlog.Hash, error) {
	body, err := get(url, "")
	if err != nil {
		return nil, err
	}
	var answer struct{ Data struct{ Proof []string } }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	var proof []tlog.Hash
	for _, text := range answer.Data.Proof {
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(bytes) != tlog.HashSize {
			return nil, fmt.Errorf("%s: not a hash: %s", url, text)
		}
		var hash tlog.Hash
		copy(hash[:], bytes)
		proof = append(proof, hash)
	}
	return proof, nil
}

func check(prefix, key, token string) (int64, error) {
	tree, err := open(prefix, key)
	if err != nil {
		return 0, err
	}
	hashes := tlog.TileHashReader(tree, tiles{prefix})
	root, err := tlog.TreeHash(tree.N, hashes)
	if err != nil {
		return 0, err
	}
	if root != tree.Hash {
		return 0, fmt.Errorf("the tiles have the root %v, the checkpoint %v", root, tree.Hash)
	}
	records, err := entries(prefix, token, tree.N)
	if err != nil {
		return 0, err
	}
	for index, record := range records {
		n := int64(index)
		proof, err := tlog.ProveRecord(tree.N, n, hashes)
		if err != nil {
			return 0, err
		}
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, n, tlog.RecordHash(record)); err != nil {
			return 0, fmt.Errorf("record %d by its tiles: %v", n, err)
		}
		if n%37 != 0 {
			continue
		}
		made, err := served(fmt.Sprintf("%s/proof/inclusion?position=%d&size=%d", prefix, n+1, tree.N))
		if err != nil {
			return 0, err
		}
		if err := tlog.CheckRecord(made, tree.N, tree.Hash, n, tlog.RecordHash(record)); err != nil {
			return 0, fmt.Errorf("record %d as the service proves it: %v", n, err)
		}
		old, err := tlog.TreeHash(n+1, hashes)
		if err != nil {
			return 0, err
		}
		grown, err := tlog.ProveTree(tree.N, n+1, hashes)
		if err != nil {
			return 0, err
		}
		if err := tlog.CheckTree(grown, tree.N, tree.Hash, n+1, old); err != nil {
			return 0, fmt.Errorf("growth from %d by its tiles: %v", n+1, err)
		}
		made, err = served(fmt.Sprintf("%s/proof/consistency?from=%d&to=%d", prefix, n+1, tree.N))
		if err != nil {
			return 0, err
		}
		if err := tlog.CheckTree(made, tree.N, tree.Hash, n+1, old); err != nil {
			return 0, fmt.Errorf("growth from %d as the service proves it: %v", n+1, err)
		}
	}
	return tree.N, nil
}

func main() {
	size, err := check(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(size)
}
