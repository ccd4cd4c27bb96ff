//! How other programs read the parts of a request of which keys are made, and what they take for one row. They run as real programs,
//! their stored readings are data, and the gateway reads the same texts.
//!
//! PHP, Python, Node and nginx read a path, a query and a body. Two releases of graphql-js read a document. Rails,
//! echo, PHP, Flask, Express and Spring, and ASP.NET Core by its documentation, read several sources in an order of
//! their own. Databases and languages decide what is one row (`readings/rows.jsonl`, `readings/rows/`). Other
//! readings are data in `readings/`.

pub mod key_reader;
pub mod merged;
pub mod programs;
pub mod reading;
pub mod rows;
