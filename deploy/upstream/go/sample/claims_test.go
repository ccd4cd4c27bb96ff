package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"fencegate.example/fencing"
)

type story struct {
	Name, Compare string
	Steps         []step
}

type step struct {
	Mode, Token, Number, End string
	Keys                     []string
	Passes                   bool
}

// fresh empties the tables of the recipe.
func fresh(t *testing.T, compare string) *sql.DB {
	db, err := sql.Open("postgres", os.Getenv("DATABASE"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../postgresql/" + compare + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "-- write\n")
	// One connection, and so one schema for all statements.
	db.SetMaxOpenConns(1)
	_, err = db.Exec("DROP SCHEMA IF EXISTS stories CASCADE; CREATE SCHEMA stories; SET search_path = stories;" + table)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestClaimsMeetTheMarksThatTheContractSays(t *testing.T) {
	var all struct{ Claims []story }
	text, err := os.ReadFile("../../vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all.Claims) == 0 {
		t.Fatal("no stories: ", err)
	}
	for _, story := range all.Claims {
		compare, file := fencing.ByToken, "token"
		if story.Compare == "number" {
			compare, file = fencing.ByNumber, "number"
		}
		db := fresh(t, file)
		for at, step := range story.Steps {
			if met := play(t, db, compare, step); met != step.Passes {
				t.Errorf("%s, step %d: passes: %t", story.Name, at+1, met)
			}
		}
		db.Close()
	}
}

// play sends one step through the middleware, and returns whether its claim passes.
func play(t *testing.T, db *sql.DB, compare fencing.Compare, step step) bool {
	request := httptest.NewRequest("POST", "/", nil)
	request.Header.Set("Fencing-Key", strings.Join(step.Keys, ", "))
	request.Header.Set("Fencing-Mode", step.Mode)
	if step.Token != "" {
		request.Header.Set("Fencing-Token", step.Token)
	} else {
		request.Header.Set("Fencing-Number", step.Number)
	}
	claim := func(_ http.ResponseWriter, _ *http.Request, fence *fencing.Fence) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Claim(context.Background(), tx); err != nil || step.End == "rollback" {
			return err
		}
		return tx.Commit()
	}
	response := httptest.NewRecorder()
	fencing.New(fencing.Postgres{}, fencing.Comparing(compare))(fencing.HandlerFunc(claim)).ServeHTTP(response, request)
	if response.Code != 200 && response.Code != 412 {
		t.Fatalf("%d %s", response.Code, response.Body)
	}
	return response.Code == 200
}

// What a handler does after a stale claim has no effect, even where it does not look at the error.
func TestAHandlerThatGoesOnAfterAStaleClaimChangesNothing(t *testing.T) {
	db := fresh(t, "token")
	defer db.Close()
	newer := step{Mode: "exclusive", Keys: []string{"a"}, Token: "v1-0000000000000002-00000000-00000001"}
	if !play(t, db, fencing.ByToken, newer) {
		t.Fatal("the first of its key")
	}
	request := httptest.NewRequest("POST", "/", nil)
	request.Header.Set("Fencing-Key", "a")
	request.Header.Set("Fencing-Mode", "exclusive")
	request.Header.Set("Fencing-Token", "v1-0000000000000001-00000000-00000001")
	goesOn := func(w http.ResponseWriter, r *http.Request, fence *fencing.Fence) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		_ = fence.Claim(r.Context(), tx)
		if _, err := tx.Exec("CREATE TABLE effect ()"); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("the transaction goes on: %v", err)
		}
		return tx.Commit()
	}
	response := httptest.NewRecorder()
	fencing.New(fencing.Postgres{})(fencing.HandlerFunc(goesOn)).ServeHTTP(response, request)
	if response.Code != 412 {
		t.Errorf("%d %s", response.Code, response.Body)
	}
}
