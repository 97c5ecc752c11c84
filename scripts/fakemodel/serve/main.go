// Serve runs the model server of package fakemodel until it is interrupted, to try agents by hand. The first argument is
// a file of scripts as JSON, {"name": [{"shell": "ls"}, {"say": "done"}]}, and the second an address of the loopback
// interface. The requests are printed.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/git-agency/git-agency/scripts/fakemodel"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: serve <scripts.json> <address>")
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
			if dir := os.Getenv("DUMP"); dir != "" {
				os.WriteFile(fmt.Sprintf("%s/%03d.json", dir, requests), r.Body, 0o600)
			}
		}
		for _, u := range server.Unknown()[unknown:] {
			unknown++
			fmt.Println("unknown:", u)
		}
	}
}
