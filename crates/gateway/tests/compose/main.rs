//! compose.yaml without an engine: what can be read off it, and, where we are root, every service's own command and
//! health check with the file's environment, each in namespaces of its own under its own name.

#![allow(clippy::unwrap_used)] // clippy sees no test in functions that tests share

mod container;
mod file;
mod image;
mod network;
mod rules;
mod stack;
