package git

// Feature is something that only newer versions of git can do.
type Feature struct {
	Name  string
	Since Version
}

// Features lists them, oldest first. Whoever needs one does without where it is missing.
var Features = []Feature{
	{"merge-tree --merge-base", Version{Major: 2, Minor: 40}},
	{"replay", Version{Major: 2, Minor: 44}},
}

// Offers reports whether this git has a feature.
func (v Version) Offers(f Feature) bool { return v.AtLeast(f.Since) }
