mod rebuild;
mod speed;
mod verify;
