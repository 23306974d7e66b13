//! The Simulated driver.
