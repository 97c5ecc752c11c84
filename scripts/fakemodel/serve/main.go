// Serve runs the model server of package fakemodel until it is interrupted, to try agents by hand. The first argument is
// a file of scripts as JSON, {"name": [{"shell": "ls"}, {"say": "done"}]}, and the second an address of the loopback
// interface. The requests are printed; with a directory as third argument, their bodies are written there.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/scripts/fakemodel"
)

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		log.Fatal("usage: serve <scripts.json> <address> [<directory>]")
	}
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var scripts map[string][]fakemodel.Step
	if err := json.Unmarshal(data, &scripts); err != nil {
		log.Fatal(err)
	}
	server, err := fakemodel.Listen(os.Args[2], scripts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(server.URL)
	requests, unknown := 0, 0
	for range time.Tick(100 * time.Millisecond) {
		for _, r := range server.Requests()[requests:] {
			requests++
			fmt.Printf("%s %q step %d, %d tools\n", r.API, r.Script, r.Step, len(r.Tools))
			if len(os.Args) < 4 {
				continue
			}
			if err := os.WriteFile(filepath.Join(os.Args[3], fmt.Sprintf("%03d.json", requests)), r.Body, 0o600); err != nil {
				log.Fatal(err)
			}
		}
		for _, u := range server.Unknown()[unknown:] {
			unknown++
			fmt.Println("unknown:", u)
		}
	}
}
