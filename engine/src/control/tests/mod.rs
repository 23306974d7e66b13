//! Claims about brokers and their controller together, in the simulated world: real control shards, with shards that only
//! follow the metadata.

mod cluster;
mod faults;
mod requests;
