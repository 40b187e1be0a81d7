mod reach;
mod rebuild;
mod verify;
