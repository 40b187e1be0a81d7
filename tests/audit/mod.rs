mod beside;
mod reach;
mod rebuild;
mod verify;
