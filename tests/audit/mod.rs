mod reach;
mod rebuild;
mod speed;
mod verify;
