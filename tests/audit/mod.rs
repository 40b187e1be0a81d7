mod rebuild;
mod verify;
