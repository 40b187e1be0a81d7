mod beside;
mod busy;
mod reach;
mod rebuild;
mod verify;
