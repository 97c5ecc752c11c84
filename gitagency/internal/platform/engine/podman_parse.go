package engine

import (
	"encoding/json"
	"strconv"
	"strings"
)

// inspectFormat prints one line for each container.
const inspectFormat = "{{.Id}}|{{.Name}}|{{.State.Status}}|{{.State.ExitCode}}|{{.State.OOMKilled}}|{{.State.StartedAt}}|{{.Config.Hostname}}|{{json .State.Error}}"

// parseContainers parses the answer to inspectFormat. Lines that are not valid are left out.
func parseContainers(text string) (all []Status) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 8)
		if len(fields) != 8 || !isContainerID(fields[0]) {
			continue
		}
		problem := ""
		_ = json.Unmarshal([]byte(fields[7]), &problem) // only words about the end
		st := Status{ID: fields[0], Name: strings.TrimPrefix(fields[1], "/"), Node: oneLine(fields[6]), Attempt: 1}
		st.Detail = oneLine(strings.TrimSpace(fields[2] + "\n" + problem))
		started := !strings.HasPrefix(fields[5], "0001-") // the zero time
		exit, err := strconv.Atoi(fields[3])
		switch fields[2] {
		case "created", "configured", "initialized":
			st.State = Queued
			if started { // podman has lost its state: the machine was restarted
				st.State, st.Reason = Ended, NodeLost
			}
		case "exited", "stopped", "dead", "removing":
			st.State, st.Reason = Ended, Exited
			if err == nil && exit >= 0 {
				st.Exit = &exit
			}
			if fields[4] == "true" {
				st.Reason = NoMemory
			}
			if !started {
				st.Reason = NotBegun
			}
		default: // running, paused, restarting, stopping
			st.State = Running
		}
		all = append(all, st)
	}
	return all
}
