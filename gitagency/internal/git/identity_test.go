package git

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhoACommitIsByIsWhatGitSays(t *testing.T) {
	t.Parallel()
	repo := newLab(t).open()
	asked := 0
	for _, name := range []string{
		"A B", "A", " A", "A ", ".A", "A.", "A,B", "\"A\"", "it's", "'A'", "A\\B", "\\A", "A<B", "A>", "A\tB", "A\nB", "\x7fA", "Ä Ö", "\xff", "\u00a0A", "A\u2028", "A;", ":", "true",
	} {
		for _, role := range []string{"AUTHOR", "COMMITTER"} {
			for _, in := range []string{"settings", "own", "role", "environment"} {
				who := Persona{Now: time.Unix(1_700_000_000, 0).UTC()}
				r := *repo
				r.Config = Config{}
				var env []string
				set := func(key, value string) {
					r.Config[key] = []Setting{{Value: value, Scope: "global"}}
					env = append(env, key+"="+value)
				}
				set("user.name", "U")
				set("user.email", "u@x")
				switch in {
				case "settings":
					set("user.name", name)
					set("user.email", name)
				case "role":
					set(map[string]string{"AUTHOR": "author.name", "COMMITTER": "committer.name"}[role], name)
				case "own":
					who.Name, who.Email = name, name
				case "environment":
					who.Env = []string{"GIT_" + role + "_NAME=" + name}
				}
				swift, ok := r.ordinarySignature(who, role)
				if !ok {
					asked++
					continue
				}
				r.env = append(r.env[:len(r.env):len(r.env)], configured(env)...)
				want, err := r.signatureByGit(t.Context(), who, role)
				if err != nil || want != swift {
					t.Errorf("%s, %q in %s: %+v; git says %+v, %v", role, name, in, swift, want, err)
				}
			}
		}
	}
	if asked == 0 || asked > 150 {
		t.Errorf("git was asked %d times", asked)
	}
}

// configured are settings as the environment gives them to git.
func configured(settings []string) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings))}
	for i, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	return env
}
