package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Engines are the container engines whose images can be unpacked, the preferred one first.
var Engines = []string{"podman", "docker"}

// Engine is the command-line client of a container engine.
type Engine struct {
	Name string   // one of Engines
	Env  []string // environment of the client
}

// FindEngine returns an engine by its name, or the first of Engines that is installed if the name is empty.
func FindEngine(env []string, name string) (Engine, error) {
	names := Engines
	if name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if _, err := proc.LookPath(env, name); err == nil {
			return Engine{name, env}, nil
		}
	}
	return Engine{}, &NoEngineError{names}
}

// NoEngineError reports that no container engine is installed.
type NoEngineError struct{ Names []string }

func (e *NoEngineError) Error() string {
	if len(e.Names) == 1 {
		return e.Names[0] + " is not installed"
	}
	return "no container engine is installed: neither " + strings.Join(e.Names, " nor ")
}

// MissingError reports that an engine does not have an image.
type MissingError struct{ Engine, Reference string }

func (e *MissingError) Error() string { return e.Engine + " has no image " + quote.Shell(e.Reference) }

// FetchCommand returns the command that fetches the image, or makes it if its name is that of no registry.
func (e *MissingError) FetchCommand() string {
	if strings.HasPrefix(e.Reference, "localhost/") {
		return e.Engine + " build -t " + quote.Shell(e.Reference) + " <directory>"
	}
	return e.Engine + " pull " + quote.Shell(e.Reference)
}

// reference matches the names of images, with a registry, a tag and a digest.
var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$`) })

// CheckReference refuses a text that cannot name an image, and could be an option.
func CheckReference(name string) error {
	if !reference().MatchString(name) {
		return fmt.Errorf("%q is no name of an image", name)
	}
	return nil
}

// inspectFormat prints the id of an image, and its variables as JSON. podman calls the field ID; it accepts "{{.Id}}", as docker
// has it, but not "{{json .Id}}".
const inspectFormat = "{{.Id}} {{json .Config.Env}}"

// Inspect looks an image up by its name or id. It fetches nothing: an image that is not there is a *MissingError.
func (e Engine) Inspect(ctx context.Context, reference string) (image Image, err error) {
	if err := CheckReference(reference); err != nil {
		return image, err
	}
	out, err := e.run(ctx, "image", "inspect", "--format", inspectFormat, reference)
	var failed *ClientError
	if errors.As(err, &failed) && SaysMissing(failed.stderr) {
		return image, &MissingError{e.Name, reference}
	}
	if err != nil {
		return image, err
	}
	return parseImage(out)
}

// parseImage parses the answer of Inspect.
func parseImage(answer string) (image Image, err error) {
	id, env, _ := strings.Cut(strings.TrimSpace(answer), " ")
	image.ID = strings.TrimPrefix(id, "sha256:")
	if err = json.Unmarshal([]byte(env), &image.Env); err == nil {
		err = checkID(image.ID)
	}
	if err != nil {
		return Image{}, fmt.Errorf("the description of an image cannot be read: %w", err)
	}
	image.Env = slices.DeleteFunc(image.Env, func(kv string) bool { return strings.Index(kv, "=") < 1 })
	return image, nil
}

// labelName is the label of the containers that are made to read an image. Its value tells them from those of other data
// directories.
const labelName = "git-agency.unpacks"

// export reads the files of an image as a tar archive. Engines export only containers, so it makes one, which never runs, and
// removes it, and those that killed processes have left. The caller makes sure that no other process does so for the
// directory.
func (e Engine) export(ctx context.Context, dir, id string, read func(io.Reader) error) (err error) {
	if err := e.RemoveContainers(ctx, dir); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, e.RemoveContainers(ctx, dir))
	}()
	out, err := e.run(ctx, "create", "--pull=never", "--network", "none", "--label", labelOf(dir), id, "/bin/true")
	if err != nil {
		return err
	}
	container := strings.TrimSpace(out)
	if err := checkID(container); err != nil {
		return fmt.Errorf("%s create printed no id: %w", e.Name, err)
	}
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(reader)
		if err == nil { // what follows the end of the archive
			_, err = io.Copy(io.Discard, reader)
		}
		_ = reader.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // ends the client; always nil
		done <- err
	}()
	err = e.copy(ctx, writer, "export", container)
	_ = writer.CloseWithError(cmp.Or(err, io.EOF)) // always nil
	if readErr := <-done; readErr != nil && !errors.Is(readErr, err) {
		return readErr // the client failed because of it
	}
	return err
}

// cleanupTimeout bounds the removal of a container, also after an interrupt.
const cleanupTimeout = 30 * time.Second

// labelOf returns the label of the containers that are made for a directory of images.
func labelOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return labelName + "=" + hex.EncodeToString(sum[:8])
}

// RemoveContainers removes the containers that were made for a directory of images, and the volumes that were made with them. No
// process may unpack an image there now.
func (e Engine) RemoveContainers(ctx context.Context, dir string) error {
	out, err := e.run(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+labelOf(dir))
	for container := range strings.FieldsSeq(out) {
		if checkID(container) == nil {
			_, failed := e.run(ctx, "rm", "--volumes", container)
			err = errors.Join(err, failed)
		}
	}
	return err
}

// ClientError reports that a client failed.
type ClientError struct {
	argv   []string
	exit   int
	stderr string
}

func (e *ClientError) Error() string {
	return quote.ShellLine(e.argv[:min(len(e.argv), 2)]) + ": " + cmp.Or(quote.OneLine(ErrorText(e.stderr), maxDetail), fmt.Sprintf("exit code %d", e.exit))
}

// ErrorText returns what a client of podman or docker wrote on standard error, without the messages of its log.
func ErrorText(stderr string) string {
	var text strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "time=") {
			text.WriteString(line)
		}
	}
	return text.String()
}

// maxDetail bounds the words of a client in an error.
const maxDetail = 600

// Line returns the command line of the client, for the shell.
func (e *ClientError) Line() string { return quote.ShellLine(e.argv) }

// SaysMissing reports whether a client says that it does not know an image, in the words of podman or docker.
func SaysMissing(stderr string) bool {
	text := strings.ToLower(stderr)
	return strings.Contains(text, "image not known") || strings.Contains(text, "no such image") || strings.Contains(text, "no such object")
}

// maxAnswer bounds the answers that are not archives.
const maxAnswer = 4 << 20

// run runs the client and returns what it prints.
func (e Engine) run(ctx context.Context, args ...string) (string, error) {
	out := &proc.LimitedBuffer{Limit: maxAnswer}
	err := e.copy(ctx, out, args...)
	return out.String(), err
}

// copy runs the client and copies what it prints. A failed write ends the client.
func (e Engine) copy(ctx context.Context, to io.Writer, args ...string) error {
	argv := append([]string{e.Name}, args...)
	path, err := proc.LookPath(e.Env, e.Name)
	if err != nil {
		return &NoEngineError{[]string{e.Name}}
	}
	res, err := proc.Run(ctx, proc.Command{Argv: append([]string{path}, args...), Dir: "/", Env: e.Env, Stdout: to, DieWithParent: true})
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%s %s: %w", e.Name, args[0], err)
	case res.ExitCode != 0:
		return &ClientError{argv, res.ExitCode, string(res.Stderr)}
	}
	return nil
}
