//! A session with a database through its own command-line client: statements go in, and the end of each comes out.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::{AccessMode, SqlRecipe, SqlSession};

/// A database client as a process that ends with the test.
pub(crate) struct SqlClientProcess {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: Child,
    /// The input that makes the client print `ended`, the number of changed rows, and a code.
    tell: &'static str,
}

/// A statement that another session blocks.
pub(super) struct BlockedStatement<'t>(&'t mut SqlClientProcess);

/// The code of a statement that succeeded.
const WELL: &str = "00000";

impl SqlClientProcess {
    /// # Panics
    /// Panics if the client cannot be started.
    pub(super) fn spawn(client: &mut Command, tell: &'static str) -> Self {
        let mut child = client
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        Self { input, output: BufReader::new(output).lines(), child, tell }
    }

    pub(super) fn begin(&mut self, statement: &str) -> BlockedStatement<'_> {
        writeln!(self.input, "{statement}\n{}", self.tell).expect("it listens");
        BlockedStatement(self)
    }

    /// Sends the one statement of a claim that has to wait.
    pub(super) fn begin_claim(
        &mut self,
        recipe: &SqlRecipe,
        mode: AccessMode,
        key: &str,
        mark: &str,
    ) -> BlockedStatement<'_> {
        let (row, raise) = recipe.claim_statements(mode, key, mark);
        self.begin(&row.unwrap_or(raise))
    }
}

impl BlockedStatement<'_> {
    pub(super) fn changed_rows(self) -> Result<u64, String> {
        self.into_results().0
    }

    fn into_results(self) -> (Result<u64, String>, Vec<String>) {
        let mut told = Vec::new();
        loop {
            let line = self.0.output.next().expect("it goes on").expect("text");
            let Some(end) = line.strip_prefix("ended ") else {
                told.push(line);
                continue;
            };
            let (rows, code) = end.split_once(' ').expect("two words");
            let changed =
                if code == WELL { Ok(rows.parse().unwrap_or_default()) } else { Err(code.to_owned()) };
            return (changed, told);
        }
    }
}

impl SqlSession for SqlClientProcess {
    fn execute_sql(&mut self, statement: &str) -> Result<u64, String> {
        self.begin(statement).changed_rows()
    }

    fn query_sql(&mut self, question: &str) -> Vec<String> {
        let (ended, told) = self.begin(question).into_results();
        ended.unwrap_or_else(|code| panic!("{code}: {question}"));
        told
    }
}

impl Drop for SqlClientProcess {
    fn drop(&mut self) {
        // Both calls fail only for a process that has already ended.
        drop((self.child.kill(), self.child.wait()));
    }
}
