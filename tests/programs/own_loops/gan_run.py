"""A GAN on small images, with a loop of its own, in the manner of PyTorch's DCGAN tutorial."""

import sys

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Run
from trainer_hooks.callbacks import ModelCheckpoint

batch_size, nz, ngf, ndf, num_epochs, lr, beta1 = 8, 6, 4, 4, 9, 0.002, 0.5
real_label, fake_label = 1.0, 0.0

torch.manual_seed(999)
images = torch.randn(64, 1, 8, 8).cumsum(dim=3).tanh()
dataloader = DataLoader(TensorDataset(images), batch_size=batch_size, shuffle=True)


def weights_init(m):
    if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(m.weight.data, 0.0, 0.02)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Dropout(0.2),
    nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
)
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))

saver = ModelCheckpoint("saved", every_n_train_steps=4, save_top_k=-1)
run = Run(
    {"G": netG, "D": netD}, [optimizerD, optimizerG], max_epochs=num_epochs, callbacks=saver,
    ckpt_path="auto").open()  # fmt: skip
for epoch in run.epochs():
    for data in run.batches(dataloader):
        i = run.progress.batches_in_epoch
        label = torch.full((len(data[0]),), real_label)
        output = netD(data[0]).view(-1)
        errD_real = criterion(output, label)
        run.backward(errD_real)
        noise = torch.randn(len(data[0]), nz, 1, 1)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        run.backward(errD_fake, accumulate=True)
        run.step(optimizerD)
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        run.backward(errG)
        run.step(optimizerG)
        print(
            f"iter {epoch} {i} {errD_real.item() + errD_fake.item():.6f} {errG.item():.6f}",
            flush=True,
        )

run.close()
torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, sys.argv[1])
