package term

// ColorPolicy is all that decides whether standard output, or standard error, is coloured.
type ColorPolicy struct {
	Flag         string // always, auto or never, by the last --color or --no-color; empty without one
	NoColor      bool   // whether NO_COLOR is set and not empty
	Setting      string // always, auto or never, by color.agency, else color.ui; empty without one
	Terminal     bool   // whether the stream is a terminal
	Pager        bool   // whether a pager shows the stream
	ColorInPager bool   // value of color.pager
	Dumb         bool   // whether TERM is unset, empty or "dumb"
}

// UseColor decides by the command line, the environment, the configuration and the terminal, in that order.
func (p ColorPolicy) UseColor() bool {
	choice := p.Flag
	if choice == "" && p.NoColor {
		choice = "never"
	}
	if choice == "" {
		choice = p.Setting
	}
	switch {
	case choice == "always":
		return true
	case choice == "never" || p.Dumb:
		return false
	case p.Pager:
		return p.ColorInPager
	}
	return p.Terminal
}

// NeedsSetting reports whether git's configuration can affect the decision.
func (p ColorPolicy) NeedsSetting() bool { return p.Flag == "" && !p.NoColor }

// PagerPolicy is all that decides whether to start a pager.
type PagerPolicy struct {
	Terminal bool   // whether standard output is a terminal
	InUse    bool   // whether git has started a pager already
	Setting  string // always or never, by pager.agency; empty without it
	Program  string // command line of the pager; empty for none
	Pageable bool   // whether the output is a long listing for people
}

// UsePager decides by the terminal and the configuration, as git does.
func (p PagerPolicy) UsePager() bool {
	switch {
	case !p.Terminal || p.InUse || p.Program == "":
		return false
	case p.Setting != "":
		return p.Setting == "always"
	}
	return p.Pageable
}
