package landing

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

func TestLandingSignaturesAgreeWithGit(t *testing.T) {
	t.Parallel()
	l := sandboxtest.New(t, core.Options{})
	at := time.Date(2026, 1, 28, 12, 5, 0, 0, time.FixedZone("", 3600))
	const now = " 1769598300 +0100"
	tests := []struct {
		name              string
		config, env       []string
		author, committer string // empty: refused
	}{
		{"settings", []string{"user.name=U", "user.email=u@x"}, nil, "U <u@x>" + now, "U <u@x>" + now},
		{"author setting", []string{"user.name=U", "user.email=u@x", "author.name=A"}, nil, "A <u@x>" + now, "U <u@x>" + now},
		{
			"environment",
			[]string{"user.name=U", "user.email=u@x"},
			[]string{"GIT_AUTHOR_NAME=E", "GIT_AUTHOR_DATE=", "GIT_COMMITTER_EMAIL=e@x", "GIT_COMMITTER_DATE=@7 +0000"},
			"E <u@x>" + now, "U <e@x> 7 +0000",
		},
		{"agency settings", []string{"user.name=U", "agency.user.name=Agency", "agency.user.email=a@x"}, []string{"GIT_AUTHOR_NAME=E"}, "Agency <a@x>" + now, "Agency <a@x>" + now},
		{"invalid characters", []string{"user.email=u@x", "agency.user.name=A\n<B>"}, nil, "AB <u@x>" + now, "AB <u@x>" + now},
		{
			"configured encoding",
			[]string{"user.name=Zo\xeb", "user.email=zo\xeb@x", "i18n.commitEncoding=ISO-8859-15"},
			[]string{"GIT_AUTHOR_NAME=5 \xa4"},
			"5 € <zoë@x>" + now, "Zoë <zoë@x>" + now,
		},
		{"unset encoding", []string{"user.name=Zo\xeb", "user.email=u@x"}, nil, "Zoë <u@x>" + now, "Zoë <u@x>" + now},
		{"no identity", []string{"user.useConfigOnly=true"}, nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}, tt.env...)
			for i, setting := range tt.config {
				key, value, _ := strings.Cut(setting, "=")
				env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
			}
			env = append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(tt.config)))
			repo, err := core.Open(t.Context(), core.Options{Dir: l.Repo.Opts.Dir, Env: env, Now: func() time.Time { return at }})
			if err != nil {
				t.Fatal(err)
			}
			author, committer, err := repo.LandingSignatures(t.Context())
			if fault.Is[*fault.NoIdentityError](err) != (tt.author == "") || err != nil && tt.author != "" {
				t.Fatal(err)
			}
			line := func(s object.Signature) string {
				if s.When == "" {
					return ""
				}
				return fmt.Sprintf("%s <%s> %s", s.Name, s.Email, s.When)
			}
			if line(author) != tt.author || line(committer) != tt.committer {
				t.Errorf("author %q, committer %q", line(author), line(committer))
			}
		})
	}
}
