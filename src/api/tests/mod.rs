mod document;
mod everything;
mod fields;
mod http;
mod logs;
mod properties;
mod sample;
