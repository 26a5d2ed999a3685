package sqsub_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A citation in a comment is a fact, with up to two digits, or a field report,
// with three.
var citation = regexp.MustCompile(`\b[A-Z]\d{1,3}\b`)

func isReport(citation string) bool { return len(citation) == len("B012") }

// sources are the Go files of the repository, by path.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parsed = sync.OnceValues(func() (map[string]*ast.File, error) {
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata"):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		files[filepath.ToSlash(path)] = file
		return err
	})
	return files, err
})

// cited lists what the comments of a file cite between two positions.
func cited(file *ast.File, from, to token.Pos) []string {
	var list []string
	for _, group := range file.Comments {
		if group.Pos() >= from && group.End() <= to {
			for _, c := range group.List {
				list = append(list, citation.FindAllString(c.Text, -1)...)
			}
		}
	}
	return list
}

// rows are the rows of the table in a document, by their first column.
func rows(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var order []string
	for _, row := range regexp.MustCompile(`(?m)^\| \[?([A-Z]\d+)\b.*$`).FindAllStringSubmatch(string(text), -1) {
		if _, twice := found[row[1]]; twice {
			t.Errorf("%s: %s is there twice", path, row[1])
		}
		found[row[1]] = row[0]
		order = append(order, row[1])
	}
	if !slices.IsSortedFunc(order, compareCitations) {
		t.Errorf("%s is not sorted: %v", path, order)
	}
	return found
}

// compareCitations orders by letter, then by number.
func compareCitations(a, b string) int {
	if a[0] != b[0] || len(a) == len(b) {
		return strings.Compare(a, b)
	}
	return len(a) - len(b)
}

// Whoever reads a citation finds it explained.
func TestCitationsAreExplained(t *testing.T) {
	facts, reports := rows(t, "docs/sqs-facts.md"), rows(t, "docs/field-reports.md")
	missing := map[string]string{}
	citations := 0
	for path, file := range sources(t) {
		for _, c := range cited(file, file.FileStart, file.FileEnd) {
			citations++
			explained := facts
			if isReport(c) {
				explained = reports
			}
			if explained[c] == "" {
				missing[c] = path
			}
		}
	}
	for _, c := range slices.SortedFunc(maps.Keys(missing), compareCitations) {
		t.Errorf("%s is cited in %s and not explained in docs", c, missing[c])
	}
	if citations < 100 {
		t.Errorf("%d citations: the search is broken", citations)
	}
}

var (
	testsInFile = regexp.MustCompile("((?:`Test\\w+`(?:, )?)+) in ([\\w/]+_test\\.go)")
	testName    = regexp.MustCompile("`(Test\\w+)`")
)

// Each report names tests that are there, and one of them at least cites it; or
// it says why there is none.
func TestFieldReports(t *testing.T) {
	tests := map[string]string{} // files by test
	cites := map[string][]string{}
	for path, file := range sources(t) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			tests[f.Name.Name] += path
			cites[path+" "+f.Name.Name] = cited(file, from, f.End())
		}
	}
	for report, row := range rows(t, "docs/field-reports.md") {
		covered := false
		for _, list := range testsInFile.FindAllStringSubmatch(row, -1) {
			for _, name := range testName.FindAllStringSubmatch(list[1], -1) {
				c, ok := cites[list[2]+" "+name[1]]
				if !ok {
					t.Errorf("%s: there is no %s in %s", report, name[1], list[2])
				}
				covered = covered || slices.Contains(c, report)
			}
		}
		for _, name := range testName.FindAllStringSubmatch(row, -1) {
			if tests[name[1]] == "" {
				t.Errorf("%s: there is no %s", report, name[1])
			}
		}
		if !covered && !strings.Contains(row, "| By design not: ") {
			t.Errorf("%s: none of its tests cites it", report)
		}
	}
}
